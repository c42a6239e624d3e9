/** Sessions that the server ends while JavaScript is busy: the next call has another one. */

import { expect, onTestFinished, test } from "vitest";
import { createPostgresBackend, setupSchema } from "syncguard/postgres";
import { startAbruptProxy } from "../support/abrupt-proxy";
import { startPostgres } from "../support/postgres";
import { newKey } from "../support/suite";

test("a call does not go into a session that the server has ended", async () => {
  const server = await startPostgres();
  onTestFinished(server.stop);
  const proxy = await startAbruptProxy(server.port);
  const url = server.url.replace(`:${server.port}/`, `:${proxy.port}/`);
  await setupSchema(server.url);
  const backend = createPostgresBackend(url);
  onTestFinished(backend.close);
  for (let round = 0; round < 20; round += 1) {
    await backend.isLocked({ key: newKey() });
    proxy.end(round % 2 === 0 ? "destroy" : "resetAndDestroy");
    // The thread is busy for a moment, and calls before the event loop turns.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20);
    expect(await backend.isLocked({ key: newKey() })).toBe(false);
  }
});
