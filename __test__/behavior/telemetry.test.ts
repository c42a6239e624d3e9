import { expect, test } from "vitest";
import { acquireHandle, hashKey, lock, type LockEvent, owns, withTelemetry } from "syncguard";
import { lockError } from "../support/errors";
import { newKey, onEveryStore, take } from "../support/suite";
import { until } from "../support/until";

onEveryStore("telemetry", (connect) => {
  const observe = (includeRaw?: boolean) => {
    const events: LockEvent[] = [];
    const backend = withTelemetry(connect(), {
      onEvent: (event) => events.push(event),
      includeRaw,
    });
    return { backend, events };
  };

  test("tells of every operation, in hashes", async () => {
    const { backend, events } = observe();
    const key = newKey();
    const { lockId } = await take(backend, key);
    await backend.acquire({ key, ttlMs: 5_000 });
    await backend.isLocked({ key });
    await backend.lookup({ key });
    await backend.lookup({ lockId });
    await backend.extend({ lockId, ttlMs: 5_000 });
    await backend.release({ lockId });
    await backend.release({ lockId });
    await backend.extend({ lockId, ttlMs: 5_000 });
    await backend.isLocked({ key });
    await backend.lookup({ key });
    const keyHash = hashKey(key);
    const lockIdHash = hashKey(lockId);
    expect(events).toEqual([
      { type: "acquire", result: "ok", keyHash },
      { type: "acquire", result: "fail", reason: "locked", keyHash },
      { type: "isLocked", result: "ok", keyHash },
      { type: "lookup", result: "ok", keyHash },
      { type: "lookup", result: "ok", lockIdHash },
      { type: "extend", result: "ok", lockIdHash },
      { type: "release", result: "ok", lockIdHash },
      { type: "release", result: "fail", reason: "not-found", lockIdHash },
      { type: "extend", result: "fail", reason: "not-found", lockIdHash },
      { type: "isLocked", result: "fail", keyHash },
      { type: "lookup", result: "fail", keyHash },
    ]);
  });

  test("tells an expired lock from one that is not there", async () => {
    const { backend, events } = observe();
    const [key, other] = [newKey(), newKey()];
    const first = await take(backend, key, 1);
    const second = await take(backend, other, 1);
    await until(async () => !(await connect().isLocked({ key: other })));
    events.length = 0;
    await backend.extend({ lockId: first.lockId, ttlMs: 5_000 });
    await backend.release({ lockId: second.lockId });
    // Redis forgets a lock within the millisecond in which it stops to count.
    const forgets = "backend" in backend.capabilities && backend.capabilities.backend === "redis";
    const reason: unknown = forgets ? expect.stringMatching(/^(not-found|expired)$/) : "expired";
    expect(events).toMatchObject([
      { type: "extend", result: "fail", reason },
      // Whoever releases it has held it until now, as far as he knows.
      { type: "lost", result: "fail", lost: true, heldMs: expect.any(Number) as number },
      { type: "release", result: "fail", reason },
    ]);
  });

  test("tells the identifiers if asked to", async () => {
    const { backend, events } = observe(true);
    const key = newKey();
    const { lockId } = await take(backend, key);
    expect(events).toEqual([
      {
        type: "acquire",
        result: "ok",
        keyHash: hashKey(key),
        key,
        lockId,
      },
    ]);
  });

  test("tells of errors", async () => {
    const { backend, events } = observe();
    await lockError(backend.acquire({ key: "", ttlMs: 5_000 }));
    await lockError(backend.release({ lockId: "short" }));
    expect(events).toMatchObject([
      { type: "acquire", result: "fail" },
      { type: "release", result: "fail" },
    ]);
    expect(events.every((event) => event.reason === undefined)).toBe(true);
  });

  test("works with every helper, and tells of what handles do", async () => {
    const { backend, events } = observe();
    const key = newKey();
    const types = () => events.splice(0).map(({ type, result }) => `${type} ${result}`);
    {
      await using held = await acquireHandle(backend, { key, ttlMs: 5_000 });
      expect(await held.extend(5_000)).toMatchObject({ ok: true });
    }
    expect(types()).toEqual(["acquire ok", "extend ok", "release ok"]);
    await lock(backend, ({ lockId }) => owns(backend, lockId), { key });
    expect(types()).toEqual(["acquire ok", "lookup ok", "release ok"]);
    const { release } = await backend.lock(key);
    await lockError(backend.lock(key, { acquisition: { maxRetries: 0 } }));
    await release();
    expect(types()).toEqual(["acquire ok", "acquire fail", "release ok"]);
    await take(backend, key);
    expect(await backend.forceRelease(key)).toEqual({ ok: true });
    expect(await backend.forceRelease(key)).toEqual({ ok: false });
    expect(events.slice(1)).toEqual([
      { type: "forceRelease", result: "ok", keyHash: hashKey(key) },
      { type: "forceRelease", result: "fail", reason: "not-found", keyHash: hashKey(key) },
    ]);
  });
});
