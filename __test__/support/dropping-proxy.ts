/** A way to Redis on which messages of Pub/Sub are lost. */

import { connect, createServer, type Socket } from "node:net";
import { once } from "node:events";

const MESSAGE = "*3\r\n$7\r\nmessage\r\n";

/** Passes everything on to a server's port but every second message. */
export async function startDroppingProxy(port: number) {
  const sockets = new Set<Socket>();
  const counts = { passed: 0, dropped: 0 };
  const server = createServer((client) => {
    const upstream = connect(port, "127.0.0.1");
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.setNoDelay(true).on("error", () => undefined);
      socket.on("close", () => {
        client.destroy();
        upstream.destroy();
      });
    }
    client.pipe(upstream);
    let rest = "";
    upstream.setEncoding("latin1").on("data", (text: string) => {
      // Messages come whole: the server writes each at once, and they are short.
      const [head = "", ...messages] = (rest + text).split(MESSAGE);
      rest = "";
      let passed = head;
      for (const message of messages) {
        // Another reply may follow the three parts of a message, of which two are left.
        const end = /^\$\d+\r\n[^\r]*\r\n\$\d+\r\n[^\r]*\r\n/.exec(message)?.[0].length ?? 0;
        const isDropped = counts.passed > counts.dropped;
        counts[isDropped ? "dropped" : "passed"] += 1;
        passed += (isDropped ? "" : MESSAGE + message.slice(0, end)) + message.slice(end);
      }
      client.write(passed, "latin1");
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  return {
    url: `redis://127.0.0.1:${address.port}`,
    counts,
    stop: () => {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}
