import { expect, test } from "vitest";
import { withTelemetry } from "syncguard";
import { lockError, rejection } from "../support/errors";
import { newKey, onEveryStore } from "../support/suite";

onEveryStore("a lock that is only tried", (connect) => {
  test("runs the function under a free lock, and frees it", async () => {
    const [backend, key] = [connect(), newKey()];
    const run = await backend.tryLock(key, async ({ fence, key: own, signal, assertHeld }) => {
      assertHeld();
      expect(own).toBe(key);
      expect(signal.aborted).toBe(false);
      expect(await connect().isLocked({ key })).toBe(true);
      return fence;
    });
    expect(run).toEqual({ ran: true, value: expect.stringMatching(/^\d{15}$/) as string });
    expect(await backend.isLocked({ key })).toBe(false);
  });

  test("says who holds it and for how long at most, and runs nothing", async () => {
    const [backend, key] = [connect(), newKey()];
    await using held = await backend.lock(key, { ttlMs: 60_000, owner: "host:7" });
    let hasRun = false;
    const run = await connect().tryLock(key, () => (hasRun = true));
    expect(run).toMatchObject({ ran: false, reason: "locked", owner: "host:7" });
    const { retryAfterMs } = run as { retryAfterMs: number };
    expect(retryAfterMs).toBeGreaterThan(0);
    expect(retryAfterMs).toBeLessThanOrEqual(60_000 + 1_000);
    expect(hasRun).toBe(false);
    expect(JSON.stringify(run)).not.toContain(held.lockId);
  });

  test("frees the lock if the function throws, and throws the same", async () => {
    const [backend, key] = [connect(), newKey()];
    const failure = new Error("no paper");
    const failed = backend.tryLock(key, () => {
      throw failure;
    });
    expect(await rejection(failed)).toBe(failure);
    expect(await backend.isLocked({ key })).toBe(false);
  });

  test("takes several keys, or none of them", async () => {
    const [backend, first, second] = [connect(), newKey(), newKey()];
    const both = await backend.tryLock([first, second], ({ fences }) => [...fences.keys()].sort());
    expect(both).toEqual({ ran: true, value: [first, second].sort() });
    await using held = await backend.lock(second);
    const run = await connect().tryLock([first, second], () => 1);
    expect(run).toMatchObject({ ran: false, reason: "locked", key: second });
    expect(await backend.isLocked({ key: first })).toBe(false);
    held.assertHeld();
  });

  test("takes one slot of a key", async () => {
    const [backend, key] = [connect(), newKey()];
    const claim = { key, slots: 2 };
    await using first = await backend.lock(key, { slots: 2 });
    const run = await connect().tryLock(claim, async ({ slot }) => {
      expect(await connect().tryLock(key, () => 1, { slots: 2 })).toMatchObject({ ran: false });
      expect(await connect().acquire({ ...claim, ttlMs: 1_000 })).toMatchObject({ ok: false });
      return slot;
    });
    expect(run).toEqual({ ran: true, value: 3 - first.slot });
  });

  test("fails with throwIfLost if the lock was lost meanwhile", async () => {
    const [backend, key] = [connect(), newKey()];
    const lost = backend.tryLock(
      key,
      async () => {
        await connect().forceRelease(key);
        return 1;
      },
      { throwIfLost: true, onLost: () => undefined },
    );
    expect(await lockError(lost)).toMatchObject({ code: "LockLost" });
    const kept = await backend.tryLock(
      key,
      async () => {
        await connect().forceRelease(key);
        return 1;
      },
      { onLost: () => undefined },
    );
    expect(kept).toEqual({ ran: true, value: 1 });
  });

  test("names what is wrong, and takes no lock then", async () => {
    const [backend, key] = [connect(), newKey()];
    const wrong: [unknown[], string][] = [
      [[key], "fn"],
      [[key, 5], "fn"],
      [[key, () => 1, 7], "options"],
      [[key, {}, () => 1], "tryLock(key, fn, options)"],
      [[key, () => 1, { ttlMs: 0 }], "ttlMs"],
      [[key, () => 1, { acquisition: {} }], "acquisition"],
      [[key, () => 1, { throwIfLost: "yes" }], "throwIfLost"],
      [["", () => 1], "key"],
    ];
    for (const [args, name] of wrong) {
      const tried = (backend.tryLock as (...all: unknown[]) => Promise<unknown>)(...args);
      const error = await lockError(tried);
      expect(error.code).toBe("InvalidArgument");
      expect(error.message.toLowerCase()).toContain(name.toLowerCase());
    }
    expect(await backend.isLocked({ key })).toBe(false);
  });

  test("does not ask with a signal that is aborted", async () => {
    const [backend, key] = [connect(), newKey()];
    const tried = backend.tryLock(key, () => 1, { signal: AbortSignal.abort() });
    expect(await lockError(tried)).toMatchObject({ code: "Aborted" });
  });

  test("is told of to those who observe the backend", async () => {
    const events: string[] = [];
    const backend = withTelemetry(connect(), {
      onEvent: ({ type, result }) => events.push(`${type} ${result}`),
    });
    const key = newKey();
    await backend.tryLock(key, async () => {
      expect(await backend.tryLock(key, () => 1)).toMatchObject({ ran: false });
    });
    expect(events).toEqual(["acquire ok", "acquire fail", "release ok"]);
  });
});
