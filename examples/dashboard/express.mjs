import express from "express";
import { dashboard } from "./dashboard.mjs";

const app = express();

app.use("/locks", dashboard.node);

const server = app.listen(Number(process.env.PORT ?? 3000), "127.0.0.1", () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}/locks`);
});
process.once("SIGTERM", () => server.close());
