/** `releaseAll()` on a server that does not answer. */

import { expect, test } from "vitest";
import { createRedisBackend } from "syncguard/redis";
import { lockError } from "../support/errors";
import { startRedis } from "../support/redis";
import { newKey, take } from "../support/suite";

test("ends in time, names each lock that is left, and frees it when it is called again", async () => {
  const server = await startRedis();
  const backend = createRedisBackend(`redis://127.0.0.1:${server.port}`, {
    operationTimeoutMs: 10_000,
  });
  try {
    const keys = Array.from({ length: 300 }, newKey);
    for (const key of keys) await take(backend, key, 60_000);
    await server.admin.call("CLIENT", "PAUSE", "60000", "WRITE");
    // Its answer is still missing when releaseAll() has ended.
    const late = lockError(backend.acquire({ key: newKey(), ttlMs: 60_000 }));
    const startedMs = performance.now();
    const { released, gone, failed } = await backend.releaseAll({ timeoutMs: 300 });
    // Nor for its operations, which have ten seconds.
    expect(performance.now() - startedMs).toBeLessThan(9_000);
    expect({ released, gone }).toEqual({ released: 0, gone: 0 });
    expect(failed.map(({ context }) => context?.key).sort()).toEqual([...keys].sort());
    for (const error of failed) {
      expect(error.code).toBe("NetworkTimeout");
      expect(error.message).toContain("the 300 ms of releaseAll()");
    }
    await server.admin.call("CLIENT", "UNPAUSE");
    expect(await late).toMatchObject({ code: "Aborted" });
    // Some of the releases may have arrived.
    const again = await backend.releaseAll();
    expect(again.failed).toEqual([]);
    expect(again.released + again.gone).toBe(keys.length);
    await backend.close();
    expect((await server.admin.keys("*")).filter((name) => !name.includes(":fence:"))).toEqual([]);
  } finally {
    await backend.close();
    await server.stop();
  }
});
