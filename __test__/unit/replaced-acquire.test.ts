/** What becomes of calls whose `acquire` a user has replaced: spies, and methods that pass on what they get. */

import { describe, expect, test, vi } from "vitest";
import { type LockEvent, type SyncGuardBackend, withTelemetry } from "syncguard";
import { createTestBackend } from "syncguard/testing";
import { lockError } from "../support/errors";
import { settle } from "../support/until";

const TWICE_MORE = { acquisition: { maxRetries: 2, retryDelayMs: 1 } };

/** A backend with a spy in the place of `acquire`, and what stands before it. */
const SPIED: [string, (backend: SyncGuardBackend) => SyncGuardBackend][] = [
  ["a backend", (backend) => backend],
  ["telemetry over it", (backend) => withTelemetry(backend, { onEvent: () => undefined })],
];

describe.each(SPIED)("a spy on acquire of %s", (_, wrap) => {
  function spied() {
    const inner = createTestBackend();
    const acquire = vi.spyOn(inner, "acquire");
    return { inner, acquire, backend: wrap(inner) };
  }

  test("sees each attempt, and lock() waits", async () => {
    const { inner, acquire, backend } = spied();
    const first = await backend.lock("a");
    expect(await lockError(backend.lock("a", TWICE_MORE))).toMatchObject({
      code: "AcquisitionTimeout",
      context: { key: "a" },
    });
    expect(acquire).toHaveBeenCalledTimes(1 + 3);
    await first.release();
    await using held = await backend.lock("a", { autoExtend: true });
    expect(held.fence > first.fence).toBe(true);
    expect(await inner.isLocked({ key: "a" })).toBe(true);
  });

  test("is asked for all keys, and for slots", async () => {
    const { inner, acquire, backend } = spied();
    const both = await backend.lock(["b", "a"], { ttlMs: 5_000 });
    expect(both.locks.map(({ key }) => key)).toEqual(["a", "b"]);
    expect(acquire).toHaveBeenLastCalledWith(
      expect.objectContaining({ claims: [{ key: "b" }, { key: "a" }], ttlMs: 5_000 }),
    );
    expect(await both.release()).toEqual({ ok: true });
    expect(await inner.isLocked({ key: "b" })).toBe(false);
    const slots = [
      await backend.lock("c", { slots: 2 }),
      await backend.lock({ key: "c", slots: 2 }),
    ];
    expect(slots.map(({ slot }) => slot).sort()).toEqual([1, 2]);
    await lockError(backend.lock("c", { slots: 2, ...TWICE_MORE }));
    const pair = await backend.lock({ key: "d", slots: 3, take: 2 });
    expect(pair.locks).toHaveLength(2);
  });

  test("cannot be asked for what only this package's own acquire() knows", async () => {
    const { backend } = spied();
    const fn = vi.fn();
    for (const refused of [
      backend.once("job", { due: "2026-01-01" }, fn),
      backend.tryLock("a", fn),
    ]) {
      expect(await lockError(refused)).toMatchObject({ code: "InvalidArgument" });
    }
    expect(fn).not.toHaveBeenCalled();
  });
});

test("each attempt on a spied backend is told of once", async () => {
  const inner = createTestBackend();
  vi.spyOn(inner, "acquire");
  const events: LockEvent[] = [];
  const backend = withTelemetry(inner, { onEvent: (event) => events.push(event) });
  const held = await backend.lock("a");
  await lockError(backend.lock("a", { acquisition: { maxRetries: 0 } }));
  await held.release();
  await settle();
  expect(events).toMatchObject([
    { type: "acquire", result: "ok", attempts: 1 },
    { type: "acquire", result: "fail", reason: "locked", attempts: 1 },
    { type: "release", result: "ok" },
  ]);
});
