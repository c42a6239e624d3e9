// Where servers may listen.

import { randomInt } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:net";

/** Systems take the ports of outgoing connections from higher ones. Test runners work in several processes: each has its own part. */
const PART = 5_000;
const FIRST = 10_000 + (Number(process.env.VITEST_POOL_ID ?? 0) % 4) * PART;

/** Those that were given out: a server that is being started does not listen yet. */
const given = new Set();

/** A port of 127.0.0.1 that nobody uses, and that nobody else is given. */
export async function freePort() {
  for (let tries = 0; tries < 1_000; tries += 1) {
    const port = randomInt(FIRST, FIRST + PART);
    if (given.has(port)) continue;
    const server = createServer().listen(port, "127.0.0.1");
    try {
      await once(server, "listening");
      given.add(port);
      return port;
    } catch (error) {
      if (error.code !== "EADDRINUSE") throw error;
    } finally {
      server.close();
    }
  }
  throw new Error("no free port");
}
