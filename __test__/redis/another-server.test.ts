/** A server that comes back without what it had: all that is held is asked after. */

import { expect, onTestFinished, test } from "vitest";
import type { BackendLockOptions } from "syncguard";
import { createRedisBackend } from "syncguard/redis";
import { startRedis } from "../support/redis";
import { type Backend, newKey } from "../support/suite";
import { until } from "../support/until";

/** Whether the server answers. */
const works = (backend: Backend): Promise<boolean> =>
  backend.isLocked({ key: newKey() }).then(
    () => true,
    () => false,
  );

test("holders whose locks nobody extends are told long before these end", async () => {
  const server = await startRedis();
  onTestFinished(server.stop);
  const lost: string[] = [];
  const backend = createRedisBackend(server.url);
  onTestFinished(backend.close);
  const [single, told, unheard, released] = [newKey(), newKey(), newKey(), newKey()];
  const pair = [newKey(), newKey()];
  const ttlMs = 300_000;
  const heard: BackendLockOptions = { ttlMs, onLost: (_, { key }) => void lost.push(key) };
  const held = await backend.lock(single, heard);
  const set = await backend.lock(pair, { ttlMs });
  await backend.lock(told, heard);
  await backend.lock(unheard, { ttlMs });
  const gone = await backend.lock(released, heard);
  const signals = [held.signal, set.signal, gone.signal];
  await gone.release();
  await server.kill();
  await server.start();
  // Whoever connects again calls for another reason.
  await until(() => works(backend));
  await until(() => signals[0]!.aborted && signals[1]!.aborted && lost.length === 2);
  for (const signal of signals.slice(0, 2)) {
    expect(signal.reason).toMatchObject({
      code: "LockLost",
      message: "the lock was lost: the store no longer has it",
    });
  }
  expect(signals[2]!.aborted).toBe(false);
  expect(lost).toEqual([single, told]);
});

test("a lock that extends itself is asked after, whichever connection is the first to be made", async () => {
  const server = await startRedis();
  onTestFinished(server.stop);
  const backend = createRedisBackend(server.url, { onLost: () => undefined });
  onTestFinished(backend.close);
  // It was granted over the connection of heartbeats. The next one is due after a hundred seconds.
  const { signal } = await backend.lock(newKey(), { ttlMs: 300_000, autoExtend: true });
  await server.kill();
  await server.start();
  await until(() => works(backend));
  await until(() => signal.aborted);
  expect(signal.reason).toMatchObject({ code: "LockLost" });
});
