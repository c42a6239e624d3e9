import Fastify from "fastify";
import { dashboard } from "./dashboard.mjs";

const app = Fastify();

app.all("/locks", (request, reply) => dashboard.node(request.raw, reply.hijack().raw));

const url = await app.listen({ host: "127.0.0.1", port: Number(process.env.PORT ?? 3000) });
console.log(`listening on ${url}/locks`);
process.once("SIGTERM", () => void app.close());
