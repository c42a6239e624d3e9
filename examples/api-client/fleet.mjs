// The partner's service, and three workers that call it. One worker is killed while it does.

import { createServer } from "node:http";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { startFleet } from "../lib/fleet.mjs";

const ALLOWED = 5;
let [running, most, served, refused] = [0, 0, 0, 0];
const partner = createServer((request, response) => {
  running += 1;
  most = Math.max(most, running);
  if (running > ALLOWED) refused += 1;
  const status = running > ALLOWED ? 429 : 200;
  setTimeout(() => response.writeHead(status).end("done"), 40);
  response.once("close", () => (running -= 1));
  response.once("finish", () => (served += status === 200 ? 1 : 0));
});
await once(partner.listen(0, "127.0.0.1"), "listening");
process.env.PARTNER_URL = `http://127.0.0.1:${partner.address().port}`;

let killed = false;
const script = fileURLToPath(new URL("worker.mjs", import.meta.url));
const fleet = startFleet(script, ["first", "second", "third"], {
  onLine(name, line, child) {
    if (name !== "first" || killed || !line.startsWith("calls")) return;
    killed = true;
    console.log("first gets SIGKILL");
    child.kill("SIGKILL");
  },
});
await fleet.ended;
partner.close();
console.log(`${served} calls, at most ${most} at a time, ${refused} refused`);
process.exitCode = refused === 0 && most <= ALLOWED ? 0 : 1;
fleet.remove();
