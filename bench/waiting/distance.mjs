// A server that is some milliseconds away: a process that passes everything on, so much later.

import { connect, createServer } from "node:net";

export async function tasksOf() {
  return {
    /** The same URL on a port that leads there. Each direction takes half of the time. */
    async to({ url, awayMs }) {
      const { hostname, port } = new URL(url);
      const server = createServer({ noDelay: true }, (near) => {
        const far = connect({ host: hostname, port: Number(port), noDelay: true });
        for (const [from, into] of [[near, far], [far, near]]) {
          from.on("data", (data) => setTimeout(() => into.write(data), awayMs / 2));
          from.on("close", () => into.destroy());
          from.on("error", () => into.destroy());
        } // prettier-ignore
      });
      await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
      const there = new URL(url);
      there.port = String(server.address().port);
      return String(there);
    },

    close: () => undefined,
  };
}
