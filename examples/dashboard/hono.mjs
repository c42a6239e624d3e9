import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { dashboard } from "./dashboard.mjs";

const app = new Hono();

app.all("/locks", (context) => dashboard(context.req.raw));

const port = Number(process.env.PORT ?? 3000);
const server = serve({ fetch: app.fetch, hostname: "127.0.0.1", port }, ({ port }) => {
  console.log(`listening on http://127.0.0.1:${port}/locks`);
});
process.once("SIGTERM", () => server.close());
