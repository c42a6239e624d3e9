import { inspect } from "node:util";
import { describe, expect, test } from "vitest";
import { getById, getByIdRaw, type LockError, lock, owns, validateLockId } from "syncguard";
import { lockError } from "../support/errors";
import { isRejected } from "../support/promises";
import { type Backend, newKey, onEveryStore, take } from "../support/suite";

const WRONG = [undefined, null, 42, Number.NaN, true, {}, [], Symbol("s"), () => "k", 10n] as const;
const WRONG_TTLS = [0, -1, 1.5, Number.NaN, Infinity, undefined, null, "5000", {}, 10n] as const;
const WRONG_IDS = ["", "short", "a".repeat(23), "a".repeat(21) + "!", ...WRONG] as const;

/** An operation called with something that its type forbids. */
const call = (operation: unknown, ...args: unknown[]): Promise<unknown> =>
  (operation as (...given: unknown[]) => Promise<unknown>)(...args);

/** After all that can be done without going back to the event loop. */
const turnOfMicrotasks = () => new Promise((resolve) => process.nextTick(resolve));

onEveryStore("errors", (connect) => {
  const refuses = async (start: () => Promise<unknown>): Promise<LockError> => {
    // Outside of the try: a synchronous throw is a failure of the test.
    const promise = start();
    expect(promise).toBeInstanceOf(Promise);
    // In the same turn: whoever starts two operations and awaits the first must not see the second go unhandled.
    await turnOfMicrotasks();
    expect(isRejected(promise)).toBe(true);
    const error = await lockError(promise);
    expect(error.code).toBe("InvalidArgument");
    return error;
  };

  test.each(WRONG.map((value) => [inspect(value), value] as const))(
    "a key of the wrong type is refused: %s",
    async (_, key) => {
      const backend = connect();
      for (const start of [
        () => call(backend.acquire, { key, ttlMs: 5_000 }),
        () => call(backend.isLocked, { key }),
        () => call(backend.lookup, { key }),
        () => call(backend.forceRelease, key),
        () => call(backend.lock, key),
        () => call(lock, backend, () => 1, { key }),
      ]) {
        const error = await refuses(start);
        expect(error.message).toMatch(
          /^(Key must be a string|lookup needs|keys must not be empty)/,
        );
      }
    },
  );

  test("an empty and an overlong key are refused", async () => {
    const backend = connect();
    const overlong = "é".repeat(257);
    expect((await refuses(() => backend.acquire({ key: "", ttlMs: 1 }))).message).toBe(
      "Key must not be empty",
    );
    expect((await refuses(() => backend.isLocked({ key: overlong }))).message).toBe(
      "Key exceeds maximum length of 512 bytes after normalization",
    );
  });

  test.each(WRONG_TTLS.map((value) => [inspect(value), value] as const))(
    "a TTL that is no positive integer is refused: %s",
    async (_, ttlMs) => {
      const backend = connect();
      const key = newKey();
      const lockId = "a".repeat(22);
      const starts = [
        () => call(backend.acquire, { key, ttlMs }),
        () => call(backend.extend, { lockId, ttlMs }),
      ];
      // Where there is a default, nothing means the default, and so does null.
      if (ttlMs !== undefined && ttlMs !== null) {
        starts.push(() => call(backend.lock, key, { ttlMs }));
        starts.push(() => call(lock, backend, () => 1, { key, ttlMs }));
      }
      for (const start of starts) {
        expect((await refuses(start)).message).toMatch(/^ttlMs must be a positive integer/);
      }
      expect(await backend.isLocked({ key })).toBe(false);
    },
  );

  test.each(WRONG_IDS.map((value) => [inspect(value), value] as const))(
    "a lock id of the wrong form is refused: %s",
    async (_, lockId) => {
      const backend = connect();
      for (const start of [
        () => call(backend.release, { lockId }),
        () => call(backend.extend, { lockId, ttlMs: 5_000 }),
        () => call(backend.lookup, { lockId }),
      ]) {
        const error = await refuses(start);
        expect(error.message).toMatch(
          /^(Invalid lockId format\. Expected 22 base64url|lookup needs)/,
        );
      }
    },
  );

  test.each([undefined, null, 42, "key"])("missing options are refused: %s", async (options) => {
    const backend = connect();
    const { acquire, release, extend, isLocked, lookup } = backend;
    for (const operation of [acquire, release, extend, isLocked, lookup]) {
      await refuses(() => call(operation, options));
    }
    if (options !== undefined && options !== null)
      await refuses(() => call(backend.lock, newKey(), options));
    await refuses(() => call(lock, backend, () => 1, options));
  });

  test("a signal that is none is refused", async () => {
    const backend = connect();
    const key = newKey();
    const lockId = "a".repeat(22);
    const deaf = { aborted: false, addEventListener: () => undefined };
    const undecided = { ...deaf, removeEventListener: () => undefined, aborted: undefined };
    for (const signal of [1, {}, "signal", deaf, undecided]) {
      await refuses(() => call(backend.acquire, { key, ttlMs: 5_000, signal }));
      await refuses(() => call(backend.release, { lockId, signal }));
      await refuses(() => call(backend.extend, { lockId, ttlMs: 5_000, signal }));
      await refuses(() => call(backend.isLocked, { key, signal }));
      await refuses(() => call(backend.lookup, { key, signal }));
      await refuses(() => call(backend.forceRelease, key, { signal }));
      await refuses(() => call(lock, backend, () => 1, { key, signal }));
      await refuses(() => call(lock, backend, () => 1, { key, acquisition: { signal } }));
    }
    expect(await backend.isLocked({ key })).toBe(false);
  });

  test("operations are rejected when they return, for arguments that are wrong", async () => {
    const backend = connect();
    const [key, lockId, ttlMs] = [newKey(), "a".repeat(22), 5_000];
    const signal = AbortSignal.abort();
    const rejected = [
      backend.acquire({ key: "", ttlMs }),
      backend.acquire({ key: "k".repeat(513), ttlMs }),
      backend.acquire({ key: "é".repeat(257), ttlMs }),
      backend.acquire({ key, ttlMs: 0 }),
      backend.acquire({ key, ttlMs: 1e16 }),
      backend.acquire({ key, ttlMs, owner: "" }),
      backend.acquire({ key, ttlMs, owner: "o".repeat(256) }),
      backend.acquire({ key, ttlMs, signal }),
      backend.release({ lockId: "short" }),
      backend.release({ lockId, signal }),
      backend.extend({ lockId: "short", ttlMs }),
      backend.extend({ lockId, ttlMs: -1 }),
      backend.isLocked({ key: "" }),
      backend.lookup({ key: "" }),
      backend.lookup({ lockId: "short" }),
      backend.forceRelease(""),
    ];
    expect(rejected.map(isRejected)).toEqual(rejected.map(() => true));
    for (const promise of rejected) await lockError(promise);
  });

  test("a lock id that is malformed by little is not in the error", async () => {
    const backend = connect();
    const { lockId: real } = await take(backend, newKey());
    for (const lockId of [`${real}\n`, ` ${real}`, `${real}=`, `"${real}"`]) {
      for (const start of [
        () => backend.release({ lockId }),
        () => backend.extend({ lockId, ttlMs: 5_000 }),
        () => getById(backend, lockId),
        () => getByIdRaw(backend, lockId),
        () => owns(backend, lockId),
        async () => validateLockId(lockId),
      ]) {
        const error = await refuses(start);
        expect(error.message).toMatch(/^Invalid lockId format\..*got: a string of length 2[34]$/);
        expect(inspect(error)).not.toContain(real);
      }
    }
  });

  test("text that is no Unicode is refused: stores would take one key for another", async () => {
    const backend = connect();
    const ttlMs = 5_000;
    for (const lone of ["\ud800", "a\udc00", "\udbff".repeat(100), `${"x".repeat(200)}\ud800`]) {
      for (const start of [
        () => backend.acquire({ key: lone, ttlMs }),
        () => backend.isLocked({ key: lone }),
        () => backend.lookup({ key: lone }),
        () => backend.forceRelease(lone),
        () => backend.lock(lone),
        () => lock(backend, () => 1, { key: lone }),
      ]) {
        expect((await refuses(start)).message).toBe("Key must be well-formed Unicode");
      }
      const owner = lone;
      const error = await refuses(() => backend.acquire({ key: newKey(), ttlMs, owner }));
      expect(error.message).toBe("owner must be well-formed Unicode");
    }
    const key = `${newKey()}💳é`;
    expect((await backend.acquire({ key, ttlMs })).ok).toBe(true);
    expect(await backend.isLocked({ key })).toBe(true);
  });

  test("null counts as not given", async () => {
    const backend = connect();
    const key = newKey();
    const waiting = ["maxRetries", "retryDelayMs", "backoff", "jitter", "timeoutMs", "signal"];
    const acquisition = Object.fromEntries(waiting.map((name) => [name, null]));
    const none = { ttlMs: null, signal: null, onReleaseError: null, acquisition };
    expect(await call(lock, backend, () => 1, { key, ...none })).toBe(1);
    expect(await call(lock, backend, () => 1, { key, acquisition: null })).toBe(1);
    const all = { ...none, disposeTimeoutMs: null, owner: null };
    const held = (await call(backend.lock, key, all)) as Awaited<ReturnType<Backend["lock"]>>;
    expect(await call(backend.isLocked, { key, signal: null })).toBe(true);
    expect(await call(backend.lookup, { key, lockId: null, signal: null })).not.toBeNull();
    expect(await call(held.extend, 5_000, null)).toMatchObject({ ok: true });
    expect(await call(held.release, null)).toEqual({ ok: true });
    expect(await call(backend.forceRelease, key, { signal: null })).toEqual({ ok: false });
    expect(await call(backend.forceRelease, key, null)).toEqual({ ok: false });
    const again = (await call(backend.lock, key, null)) as typeof held;
    expect(await again.release()).toEqual({ ok: true });
    const options = { key, ttlMs: 5_000, owner: null, signal: null };
    expect(await call(backend.acquire, options)).toMatchObject({ ok: true });
  });

  test("waiting options that make no sense are refused by name, before the first attempt", async () => {
    const backend = connect();
    const key = newKey();
    for (const [field, values] of Object.entries({
      maxRetries: [-1, 0.5, Number.NaN, "3"],
      retryDelayMs: [-1, Number.NaN, Infinity, "3"],
      timeoutMs: [-1, Number.NaN, "3"],
      backoff: ["linear", 3],
      jitter: ["some", 3],
    })) {
      for (const value of values) {
        const acquisition = { [field]: value };
        if (value === null) continue;
        let ran = false;
        const work = (): void => {
          ran = true;
        };
        const error = await refuses(() => call(lock, backend, work, { key, acquisition }));
        expect(error.message).toContain(field);
        expect(ran).toBe(false);
      }
    }
  });

  test("an owner label that does not fit is refused", async () => {
    const backend = connect();
    const key = newKey();
    for (const owner of ["o".repeat(256), 7, {}]) {
      await refuses(() => call(backend.acquire, { key, ttlMs: 5_000, owner }));
    }
    expect((await backend.acquire({ key, ttlMs: 5_000, owner: "o".repeat(255) })).ok).toBe(true);
  });

  describe("a rejection", () => {
    async function callerOfAcquire(backend: Backend, key: string): Promise<void> {
      await backend.acquire({ key, ttlMs: 0 });
    }
    async function callerOfLock(backend: Backend, key: string): Promise<void> {
      await lock(backend, () => undefined, { key, ttlMs: 0.5 });
    }
    async function callerInFlight(backend: Backend, key: string): Promise<void> {
      const controller = new AbortController();
      const pending = backend.acquire({ key, ttlMs: 5_000, signal: controller.signal });
      controller.abort();
      await pending;
    }
    async function callerOfTimeout(backend: Backend, key: string): Promise<void> {
      await backend.acquire({ key, ttlMs: 5_000 });
      await lock(backend, () => undefined, { key, acquisition: { maxRetries: 0 } });
    }

    test("has the stack of its caller", async () => {
      for (const caller of [callerOfAcquire, callerOfLock, callerInFlight, callerOfTimeout]) {
        const error = await lockError(caller(connect(), newKey()));
        expect(error.stack).toContain(caller.name);
        expect(error.stack).toMatch(/^LockError: /);
      }
    });

    test("knows the key and prints none", async () => {
      for (const caller of [callerOfAcquire, callerInFlight, callerOfTimeout]) {
        // One that was cancelled may hold its key for a moment more.
        const key = newKey();
        const error = await lockError(caller(connect(), key));
        expect(error.context?.key).toBe(key);
        expect(inspect(error)).not.toContain(key);
      }
      const lockId = "%".repeat(22);
      const error = await lockError(connect().release({ lockId }));
      expect(error.context?.lockId).toBe(lockId);
    });
  });
});
