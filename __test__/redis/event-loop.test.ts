/** What becomes of answers when the event loop, or the socket, has a lot to do. */

import { setImmediate as nextTurn } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { getByKey, hashKey } from "syncguard";
import { createRedisBackend, type RedisConnectionOptions } from "syncguard/redis";
import { type RedisServer, startRedis, startTlsRedis } from "../support/redis";
import { newKey, take } from "../support/suite";

type Place = { server: RedisServer; connection: RedisConnectionOptions };

let plain: RedisServer;
let secured: Awaited<ReturnType<typeof startTlsRedis>>;
beforeAll(async () => {
  [plain, secured] = await Promise.all([startRedis(), startTlsRedis()]);
});
afterAll(async () => {
  await Promise.all([plain.stop(), secured.stop()]);
});

const ways: Readonly<Record<string, () => Place>> = {
  TCP: () => ({ server: plain, connection: { host: "127.0.0.1", port: plain.port } }),
  "a unix socket": () => ({ server: plain, connection: { path: `${plain.folder}/redis.sock` } }),
  TLS: () => ({ server: secured, connection: secured.connection }),
};

/** Keeps the server from everything else, reading included. Resolves when it has begun. */
async function stop(server: RedisServer, ms: number): Promise<{ done: Promise<unknown> }> {
  const until =
    "local function now() local t = redis.call('TIME') return t[1] * 1e3 + t[2] / 1e3 end ";
  const busy = `${until} local till = now() + ${ms} while now() < till do end return 1`;
  const done = server.admin.eval(busy, 0);
  await nextTurn();
  return { done };
}

describe.each(Object.entries(ways))("over %s", (_, open) => {
  test(
    "a backlog that no socket takes at once is answered in full, and nothing is mixed up",
    { timeout: 120_000 },
    async () => {
      const { server, connection } = open();
      const backend = createRedisBackend(connection, { operationTimeoutMs: 60_000 });
      onTestFinished(backend.close);
      // Long keys, so that all of them are more than what the buffers of the system take.
      const keys = Array.from(
        { length: 10_000 },
        (_, index) => `${newKey()}:${index}:${"k".repeat(440)}`,
      );
      await backend.isLocked({ key: "connected" });

      const first = await stop(server, 500);
      const held = await Promise.all(keys.map((key) => take(backend, key, 120_000)));
      await first.done;
      expect(new Set(held.map(({ lockId }) => lockId)).size).toBe(keys.length);

      // Answers of three forms: whoever gets one that another has asked for shows it.
      const second = await stop(server, 500);
      const found = await Promise.all(
        keys.map(async (key) => {
          const [record, isFree, extended] = await Promise.all([
            getByKey(backend, key),
            backend.isLocked({ key: `${key}:other` }).then((isLocked) => !isLocked),
            backend.extend({ lockId: "A".repeat(22), ttlMs: 1_000 }),
          ]);
          return { hash: record?.keyHash, fence: record?.fence, isFree, ok: extended.ok };
        }),
      );
      await second.done;
      const expected = keys.map((key, index) => {
        return { hash: hashKey(key), fence: held[index]?.fence, isFree: true, ok: false };
      });
      expect(found).toEqual(expected);
      const released = await Promise.all(held.map((one) => one.release()));
      expect(released.every(({ ok }) => ok)).toBe(true);
    },
  );

  test("what came while the event loop was blocked for longer than the limit counts", async () => {
    const { server, connection } = open();
    const operationTimeoutMs = 300;
    const settings = { ...connection, connectionName: newKey().replaceAll(":", "-") };
    const backend = createRedisBackend(settings, { operationTimeoutMs });
    onTestFinished(backend.close);
    await backend.isLocked({ key: newKey() });
    const mine = async (): Promise<string[]> => {
      const list = (await server.admin.client("LIST")) as string;
      return list
        .split("\n")
        .filter((line) => line.includes(`name=${settings.connectionName} `))
        .map((line) => line.split(" ", 1)[0] ?? "");
    };
    const before = await mine();

    // A few are sent before the thread is blocked; many when the event loop has turned.
    for (const [count, turns] of [
      [8, 0],
      [64, 1],
    ] as const) {
      const keys = Array.from({ length: count }, newKey);
      const attempts = Promise.allSettled(
        keys.map((key) => backend.acquire({ key, ttlMs: 30_000 })),
      );
      for (let turn = 0; turn < turns; turn += 1) await nextTurn();
      const end = performance.now() + operationTimeoutMs * 4;
      while (performance.now() < end);
      const outcomes = (await attempts).map((one) =>
        one.status === "fulfilled" ? one.value.ok : (one.reason as Error).message,
      );
      expect(outcomes).toEqual(keys.map(() => true));
      for (const key of keys) expect(await backend.isLocked({ key })).toBe(true);
    }
    expect(await mine()).toEqual(before);
  });
});
