import { createServer, type AddressInfo } from "node:net";

/** A port that nobody listens on. */
export async function freePort(): Promise<number> {
  const server = createServer();
  return await new Promise((done, fail) => {
    server.on("error", fail).listen(0, "127.0.0.1", () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => {
        done(port);
      });
    });
  });
}
