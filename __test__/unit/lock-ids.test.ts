/** Locks that are released and extended by their ids: what their handles, and those who hear of them, know then. */

import { describe, expect, test, vi } from "vitest";
import type { OnLost, OnReleaseError } from "syncguard";
import { createTestBackend, TestClock } from "syncguard/testing";
import { lockError, thrownLockError } from "../support/errors";

function stage() {
  const clock = new TestClock();
  const onLost = vi.fn<OnLost>();
  const onReleaseError = vi.fn<OnReleaseError>();
  const backend = createTestBackend({ clock, onLost, onReleaseError });
  return { clock, backend, onLost, onReleaseError };
}

describe("a lock without heartbeats that was released by its id is not lost", () => {
  test("at its end, whoever asks", async () => {
    const { clock, backend, onLost } = stage();
    const held = await backend.lock("a", { ttlMs: 1_000 });
    expect(await backend.release({ lockId: held.lockId })).toEqual({ ok: true });
    const { signal } = held;
    await clock.advance(60_000);
    expect(thrownLockError(() => held.assertHeld()).message).toContain("it was released");
    expect(signal.aborted).toBe(false);
    expect(onLost).not.toHaveBeenCalled();
  });

  test("when it is extended or released again", async () => {
    const { backend, onLost } = stage();
    const held = await backend.lock("a", { ttlMs: 1_000 });
    await backend.release({ lockId: held.lockId });
    expect(await held.extend(1_000)).toEqual({ ok: false });
    expect(await held.release()).toEqual({ ok: false });
    expect(held.signal.aborted).toBe(false);
    expect(onLost).not.toHaveBeenCalled();
  });

  test("when its signal is asked for while the release is on its way", async () => {
    const { clock, backend, onLost } = stage();
    const held = await backend.lock("a", { ttlMs: 1_000 });
    backend.faults.delay(100, "release");
    const released = backend.release({ lockId: held.lockId });
    const { signal } = held;
    await clock.advance(60_000);
    expect(await released).toEqual({ ok: true });
    expect(signal.aborted).toBe(false);
    expect(onLost).not.toHaveBeenCalled();
  });
});

describe("of several, one that is still held is named", () => {
  test("when their time is over", async () => {
    const { clock, backend, onLost } = stage();
    const held = await backend.lock(["a", "b"], { ttlMs: 1_000 });
    const { signal } = held;
    const [first, second] = held.lockIds as [string, string];
    await backend.release({ lockId: first });
    await clock.advance(1_000);
    const one = { key: "b", lockId: second };
    const all = { keys: ["a", "b"], lockIds: [first, second] };
    expect(signal.reason).toMatchObject({ code: "LockLost", context: { ...one, ...all } });
    expect(onLost.mock.lastCall?.[1]).toMatchObject(one);
  });

  test("when their release fails, at the end of a block or in releaseAll()", async () => {
    const { backend, onReleaseError } = stage();
    const [disposed, held] = [await backend.lock(["a", "b"]), await backend.lock(["c", "d"])];
    for (const { lockIds } of [disposed, held]) {
      await backend.release({ lockId: lockIds[0] as string });
    }
    backend.faults.failNext("release", undefined, 3);
    await disposed[Symbol.asyncDispose]();
    const second = { key: "b", lockId: disposed.lockIds[1] };
    expect(onReleaseError.mock.lastCall?.[1]).toMatchObject(second);
    const failed = (await backend.releaseAll()).failed;
    const contexts = failed.map((error) => error.context);
    expect(contexts).toMatchObject([second, { key: "d", lockId: held.lockIds[1] }]);
  });
});

test("a lock that is gone is not extended, also where lockIds is given and is nothing", async () => {
  const { backend } = stage();
  const held = await backend.lock("a");
  await backend.release({ lockId: held.lockId });
  const asked = { lockId: held.lockId, lockIds: undefined, ttlMs: 1_000 };
  expect(await backend.extend(asked as never)).toEqual({ ok: false });
});

describe("an error names the locks by their keys and ids", () => {
  test("that were named by their ids, as far as they are known", async () => {
    const { backend } = stage();
    const { lockIds } = await backend.lock(["a", "b", "c"]);
    const [first, second, third] = lockIds as [string, string, string];
    const { lockId } = await backend.lock("d");
    const other = await createTestBackend({ sharing: backend }).lock("e");
    const cases = [
      [
        { lockIds: [third, second] },
        { key: "c", lockId: third, keys: ["c", "b"], lockIds: [third, second] },
      ],
      [{ lockId: first }, { key: "a", lockId: first }],
      [{ lockId }, { key: "d", lockId }],
      [{ lockId: other.lockId }, { lockId: other.lockId }],
      [{ lockIds: [lockId, other.lockId] }, { key: "d", lockId, lockIds: [lockId, other.lockId] }],
    ] as const;
    for (const [named, context] of cases) {
      backend.faults.failNext("extend");
      const args = named as { lockId: string };
      const extension = await lockError(backend.extend({ ...args, ttlMs: 1_000 }));
      expect(extension.context).toEqual(context);
      backend.faults.failNext("release");
      expect((await lockError(backend.release(args))).context).toEqual(extension.context);
    }
  });

  test("that releaseAll() could not release, or not in time", async () => {
    for (const isLate of [false, true]) {
      const { clock, backend } = stage();
      const { lockIds } = await backend.lock(["a", "b"]);
      if (isLate) backend.faults.delay(2_000, "release");
      else backend.faults.failNext("release");
      const releasing = backend.releaseAll({ timeoutMs: 1_000 });
      await clock.advance(1_000);
      const context = { key: "a", lockId: lockIds[0], keys: ["a", "b"], lockIds };
      expect((await releasing).failed).toMatchObject([{ context }]);
    }
  });
});
