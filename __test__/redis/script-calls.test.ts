/** What a client's `eval` is called with: mocks of users rely on it (wire format of the TypeScript library). */

import { expect, test, vi } from "vitest";
import { lock } from "syncguard";
import { createRedisBackend, type RedisBackendOptions } from "syncguard/redis";

type Call = { script: unknown; numKeys: unknown; keys: unknown[]; args: unknown[] };

/** A backend on a mock that gives these replies, and the calls it gets. */
function mocked(replies: unknown[], options: RedisBackendOptions = {}) {
  const calls: Call[] = [];
  const client = {
    eval: vi.fn((script: string, numKeys: number, ...rest: string[]) => {
      calls.push({ script, numKeys, keys: rest.slice(0, numKeys), args: rest.slice(numKeys) });
      return Promise.resolve(replies.shift());
    }),
  };
  return { backend: createRedisBackend(client, options), calls, client };
}

const SOME_SCRIPT = expect.stringContaining("redis.call") as string;
const ID = "abcdefghijklmnopqrstuv";
const STORED = JSON.stringify({
  lockId: ID,
  expiresAtMs: 9_000_000_000_000,
  acquiredAtMs: 1_700_000_000_000,
  key: "resource:1",
  fence: "000000000000007",
});

test("acquire", async () => {
  const { backend, calls, client } = mocked([[1, 7, 1_700_000_000_000], 0]);
  const taken = await backend.acquire({ key: "resource:1", ttlMs: 5_000, owner: "me" });
  expect(taken).toMatchObject({
    ok: true,
    fence: "000000000000007",
    expiresAtMs: 1_700_000_000_000,
  });
  const lockId = taken.ok ? taken.lockId : "";
  expect(calls).toEqual([
    {
      script: SOME_SCRIPT,
      numKeys: 3,
      keys: [
        "syncguard:resource:1",
        `syncguard:id:${lockId}`,
        "syncguard:fence:syncguard:resource:1",
      ],
      args: [
        lockId,
        "5000",
        "1000",
        "syncguard:resource:1",
        "resource:1",
        '"key":"resource:1","owner":"me"}',
        "6000",
      ],
    },
  ]);
  const refused = await backend.acquire({ key: "resource:1", ttlMs: 5_000 });
  expect(refused).toMatchObject({ ok: false, reason: "locked" });
  expect(client.eval).toHaveBeenCalledTimes(2);
});

test("release", async () => {
  const { backend, calls } = mocked([1, 0, -1, -2]);
  expect(await backend.release({ lockId: ID })).toEqual({ ok: true });
  for (let count = 0; count < 3; count += 1) {
    expect(await backend.release({ lockId: ID })).toMatchObject({ ok: false });
  }
  expect(calls[0]).toEqual({
    script: SOME_SCRIPT,
    numKeys: 1,
    keys: [`syncguard:id:${ID}`],
    args: [ID, "1000", `syncguard:id:${ID}`],
  });
});

test("extend", async () => {
  const { backend, calls } = mocked([[1, 1_700_000_000_000], 0, -1, -2]);
  expect(await backend.extend({ lockId: ID, ttlMs: 250 })).toEqual({
    ok: true,
    expiresAtMs: 1_700_000_000_000,
  });
  for (let count = 0; count < 3; count += 1) {
    expect(await backend.extend({ lockId: ID, ttlMs: 250 })).toMatchObject({ ok: false });
  }
  expect(calls[0]).toEqual({
    script: SOME_SCRIPT,
    numKeys: 1,
    keys: [`syncguard:id:${ID}`],
    args: [ID, "1000", "250", "1250", `syncguard:id:${ID}`],
  });
});

test.each([true, false])("isLocked, cleanup %s", async (cleanupInIsLocked) => {
  const { backend, calls } = mocked([1, 0], { cleanupInIsLocked, keyPrefix: "app:" });
  expect(await backend.isLocked({ key: "resource:1" })).toBe(true);
  expect(await backend.isLocked({ key: "resource:1" })).toBe(false);
  expect(calls[0]).toEqual({
    script: SOME_SCRIPT,
    numKeys: 1,
    keys: ["app:resource:1"],
    args: ["app:", "1000", String(cleanupInIsLocked), "app:resource:1"],
  });
});

test("lookup", async () => {
  const { backend, calls } = mocked([STORED, Buffer.from(STORED), null, undefined]);
  const info = {
    acquiredAtMs: 1_700_000_000_000,
    expiresAtMs: 9_000_000_000_000,
    fence: "000000000000007",
  };
  expect(await backend.lookup({ key: "resource:1" })).toMatchObject(info);
  expect(await backend.lookup({ lockId: ID })).toMatchObject(info);
  expect(await backend.lookup({ key: "resource:1" })).toBeNull();
  expect(await backend.lookup({ lockId: ID })).toBeNull();
  expect(calls.slice(0, 2)).toEqual([
    { script: SOME_SCRIPT, numKeys: 1, keys: ["syncguard:resource:1"], args: ["1000"] },
    {
      script: SOME_SCRIPT,
      numKeys: 1,
      keys: [`syncguard:id:${ID}`],
      args: [ID, "1000", `syncguard:id:${ID}`],
    },
  ]);
});

test("a grant or an extension that belongs to another call is not believed", async () => {
  const another = "zyxwvutsrqponmlkjihgfe";
  const late = 9_000_000_000_000;
  const { backend, calls } = mocked([[1, 7, late, another], 1, [0, 900, STORED, another], -1]);
  for (let count = 0; count < 2; count += 1) {
    await expect(backend.acquire({ key: "resource:1", ttlMs: 5_000 })).rejects.toMatchObject({
      code: "Internal",
      message: expect.stringContaining("belongs to another call") as string,
    });
  }
  // What may have been granted is released.
  await vi.waitFor(() => expect(calls).toHaveLength(4));
  expect(calls.filter(({ numKeys }) => numKeys === 1)).toHaveLength(2);
  const extending = mocked([
    [1, late, another],
    [1, late, ID],
  ]);
  const extend = () => extending.backend.extend({ lockId: ID, ttlMs: 250 });
  await expect(extend()).rejects.toMatchObject({ code: "Internal" });
  expect(await extend()).toEqual({ ok: true, expiresAtMs: late });
});

test("a mock that answers 1 to everything grants and extends", async () => {
  vi.useFakeTimers({ now: 1_700_000_000_000, toFake: ["Date"] });
  try {
    const run = vi.fn().mockResolvedValue(1);
    const backend = createRedisBackend({ eval: run }, { keyPrefix: "" });
    const held = await backend.acquire({ key: "123", ttlMs: 5_000 });
    expect(held).toMatchObject({
      ok: true,
      fence: "000000000000001",
      expiresAtMs: 1_700_000_005_000,
    });
    expect(await held.extend(7_000)).toEqual({ ok: true, expiresAtMs: 1_700_000_007_000 });
    expect(await backend.isLocked({ key: "123" })).toBe(true);
    expect(await backend.forceRelease("123")).toEqual({ ok: true });
    expect(await held.release()).toEqual({ ok: true });
    expect(await lock(backend, ({ fence }) => fence, { key: "k" })).toBe("000000000000001");
  } finally {
    vi.useRealTimers();
  }
});

test("node-redis gets keys and arguments by name", async () => {
  const run = vi.fn((_script: string, _options: { keys: string[]; arguments: string[] }) =>
    Promise.resolve(1),
  );
  const backend = createRedisBackend({ eval: run, EVAL: run } as { eval: typeof run });
  expect(await backend.release({ lockId: ID })).toEqual({ ok: true });
  expect(run.mock.calls).toEqual([
    [SOME_SCRIPT, { keys: [`syncguard:id:${ID}`], arguments: [ID, "1000", `syncguard:id:${ID}`] }],
  ]);
});
