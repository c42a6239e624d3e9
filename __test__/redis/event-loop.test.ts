/** What becomes of answers when the event loop, or the socket, has a lot to do. */

import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { getByKey, hashKey } from "syncguard";
import { createRedisBackend, type RedisConnectionOptions } from "syncguard/redis";
import { type RedisServer, startRedis, startTlsRedis } from "../support/redis";
import { type Backend, newKey, take } from "../support/suite";

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

describe.each(Object.entries(ways))("over %s", (way, open) => {
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
      const found: unknown[] = [];
      // Redis 7.0 ends a TLS connection whose socket takes no more answers: it repeats a write with another length, which OpenSSL
      // refuses ("bad length"). There, no more is asked at a time than the socket takes.
      const most = way === "TLS" ? 500 : keys.length;
      for (let from = 0; from < keys.length; from += most) {
        const part = keys.slice(from, from + most).map(async (key) => {
          const [record, isFree, extended] = await Promise.all([
            getByKey(backend, key),
            backend.isLocked({ key: `${key}:other` }).then((isLocked) => !isLocked),
            backend.extend({ lockId: "A".repeat(22), ttlMs: 1_000 }),
          ]);
          return { hash: record?.keyHash, fence: record?.fence, isFree, ok: extended.ok };
        });
        found.push(...(await Promise.all(part)));
      }
      await second.done;
      const expected = keys.map((key, index) => {
        return { hash: hashKey(key), fence: held[index]?.fence, isFree: true, ok: false };
      });
      expect(found).toEqual(expected);
      const released = await Promise.all(held.map((one) => one.release()));
      expect(released.every(({ ok }) => ok)).toBe(true);
    },
  );

  test("answers that have come while the event loop was blocked for too long count", async () => {
    const operationTimeoutMs = 300;
    const { backends, connections } = await connected(open(), operationTimeoutMs);
    const before = await connections();
    // A few are sent before the thread is blocked; many when the event loop has turned.
    await acquireBlocked(backends, 8, 0, operationTimeoutMs * 4);
    await acquireBlocked(backends, 64, 1, operationTimeoutMs * 4);
    // The server lists them in no order.
    expect((await connections()).sort()).toEqual(before.sort());
  });
});

test("no time limit is looked at before all connections were read", async () => {
  const operationTimeoutMs = 4_000;
  const place = { server: plain, connection: { host: "127.0.0.1", port: plain.port } };
  const { backends, connections } = await connected(place, operationTimeoutMs);
  const before = await connections();
  // Whether the connections live is looked at every 500 ms while calls wait: for the last time before the limit before
  // the server answers, and for the next time after the event loop has turned.
  await sleep(1_000);
  await Promise.all(backends.map((backend) => backend.isLocked({ key: newKey() })));
  await sleep(250);
  const { done } = await stop(plain, operationTimeoutMs - 300);
  await acquireBlocked(backends, 2, 0, operationTimeoutMs + 100);
  await done;
  // There may be those of the question whether the server lives.
  expect(await connections()).toEqual(expect.arrayContaining(before));
});

/** Backends with connections, and how to see whether these are still the same. */
async function connected({ server, connection }: Place, operationTimeoutMs: number) {
  const connectionName = newKey().replaceAll(":", "-");
  const backends = [1, 2, 3].map(() => {
    return createRedisBackend({ ...connection, connectionName }, { operationTimeoutMs });
  });
  for (const backend of backends) {
    onTestFinished(backend.close);
    // Then the server knows the script: whoever has to send it in full cannot do so in time.
    await (await take(backend, newKey())).release();
  }
  const connections = async (): Promise<string[]> => {
    const list = (await server.admin.client("LIST")) as string;
    const lines = list.split("\n").filter((line) => line.includes(`name=${connectionName} `));
    return lines.map((line) => line.split(" ", 1)[0] ?? "");
  };
  return { backends, connections };
}

/** Acquires locks on all backends, lets the event loop turn so often, and blocks it; expects to get all of them. */
async function acquireBlocked(backends: Backend[], count: number, turns: number, ms: number) {
  const all = backends.flatMap((backend) =>
    Array.from({ length: count }, () => ({ backend, key: newKey() })),
  );
  const end = performance.now() + ms;
  const attempts = Promise.allSettled(
    all.map(({ backend, key }) => backend.acquire({ key, ttlMs: 30_000 })),
  );
  for (let turn = 0; turn < turns; turn += 1) await nextTurn();
  // Without anything that is collected: V8 would wake the event loop.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, end - performance.now());
  const outcomes = (await attempts).map((one) =>
    one.status === "fulfilled" ? one.value.ok : (one.reason as Error).message,
  );
  expect(outcomes).toEqual(all.map(() => true));
  for (const { backend, key } of all) expect(await backend.isLocked({ key })).toBe(true);
}
