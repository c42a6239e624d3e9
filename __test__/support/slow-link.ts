/** A way to a server on which packets can be made to take long. */

import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

export type SlowLink = {
  readonly port: number;
  /** How long each packet takes from now on, in either direction. */
  delayMs: number;
  stop: () => Promise<void>;
};

/** Leads from a port of its own to `port` on this machine. */
export async function startSlowLink(port: number): Promise<SlowLink> {
  const sockets = new Set<Socket>();
  const server = createServer((near) => {
    const far = connect(port, "127.0.0.1");
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(from);
      let before = Promise.resolve();
      // Packets stay in order, and each takes its time: those that come together arrive together.
      const later = (then: () => void): void => {
        const { delayMs } = link;
        const arrives = delayMs === 0 ? Promise.resolve() : sleep(delayMs);
        before = before.then(() => arrives).then(then);
      };
      from.on("data", (data) => later(() => to.write(data)));
      from.on("close", () => {
        sockets.delete(from);
        later(() => to.destroy());
      });
      from.on("error", () => undefined);
      from.setNoDelay(true);
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const link: SlowLink = {
    port: (server.address() as AddressInfo).port,
    delayMs: 0,
    stop: async () => {
      const closed = once(server, "close");
      server.close();
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
  return link;
}
