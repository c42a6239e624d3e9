// Where servers may listen.

import { randomInt } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:net";

/**
 * A port of 127.0.0.1 that nobody uses. Systems take those of outgoing connections from higher ones, so it is not taken
 * between the choice and the start of a server.
 */
export async function freePort() {
  for (let tries = 0; tries < 1_000; tries += 1) {
    const port = randomInt(10_000, 30_000);
    const server = createServer().listen(port, "127.0.0.1");
    try {
      await once(server, "listening");
      return port;
    } catch (error) {
      if (error.code !== "EADDRINUSE") throw error;
    } finally {
      server.close();
    }
  }
  throw new Error("no free port");
}
