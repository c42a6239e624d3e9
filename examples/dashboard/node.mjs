import { createServer } from "node:http";
import { dashboard } from "./dashboard.mjs";

const server = createServer(dashboard.node);

server.listen(Number(process.env.PORT ?? 3000), "127.0.0.1", () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}/`);
});
process.once("SIGTERM", () => server.close());
