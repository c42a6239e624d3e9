import { describe, expect, test, vi } from "vitest";
import { type LockBackendLike, LockError, type SyncGuardBackend, withTelemetry } from "syncguard";
import {
  type AtomicLockHandle,
  createAtomicLock,
  type ForrstRequest,
  type ForrstResponse,
} from "syncguard/forrst";
import { createSqliteBackend } from "syncguard/sqlite";
import { lockError, rejection, thrownLockError } from "../support/errors";
import { fakeBackend } from "../support/fake-backend";
import { isFromTheClock } from "../support/fences";
import { newKey } from "../support/suite";
import {
  charge,
  codes,
  dataOf,
  FORCE_RELEASE,
  ownerOf,
  protocol,
  RELEASE,
  STATUS,
  succeed,
  system,
  ttl,
  unreachable,
  URN,
  fullKey,
} from "./requests";

const backend = createSqliteBackend(":memory:");
const isLocked = (key: string): Promise<boolean> => backend.isLocked({ key: fullKey(key) });

describe("requests without the extension", () => {
  const { handle } = createAtomicLock(backend);

  test.each([
    ["no extensions", undefined],
    ["an empty list", []],
    ["other extensions", [{ urn: "urn:forrst:ext:deadline", options: {} }]],
  ])("pass through as they are: %s", async (_, extensions) => {
    const request: ForrstRequest = { protocol, id: 1, call: { function: "f" }, extensions };
    const response = succeed(request);
    const next = vi.fn((_request: ForrstRequest, _lock: AtomicLockHandle | undefined) => response);
    expect(await handle(request, next)).toBe(response);
    expect(next.mock.calls).toEqual([[request, undefined]]);
    expect(next.mock.calls[0]?.[0]).toBe(request);
  });

  test("keep what next throws", async () => {
    const error = new Error("mine");
    const failing = handle({ call: { function: "f" } }, () => {
      throw error;
    });
    expect(await rejection(failing)).toBe(error);
  });
});

describe("a request with the extension", () => {
  const { handle } = createAtomicLock(backend);

  test("runs under the lock, with its handle", async () => {
    const key = newKey();
    const request = charge({ key, ttl, owner: "me" });
    const frozen = JSON.stringify(request);
    const response = await handle(request, async (given, lock) => {
      expect(given).toBe(request);
      expect(lock).toMatchObject({ key: fullKey(key), owner: "me", signal: undefined });
      expect(lock?.lockId).toHaveLength(22);
      expect(lock?.fence).toSatisfy(isFromTheClock);
      expect(await isLocked(key)).toBe(true);
      const raw = await backend.lookup({ lockId: lock?.lockId ?? "" });
      expect(lock?.expiresAtMs).toBe(raw?.expiresAtMs);
      return succeed(given);
    });
    expect(JSON.stringify(request)).toBe(frozen);
    expect(dataOf(response)).toMatchObject({ acquired: true, owner: "me" });
    expect(await isLocked(key)).toBe(false);
  });

  test("keeps what other extensions say", async () => {
    const key = newKey();
    const other = { urn: "urn:forrst:ext:tracing", data: { span: 1 } };
    const stale = { urn: URN, data: { key: "not mine" } };
    const given: ForrstResponse = {
      protocol,
      id: "req_1",
      result: 1,
      extensions: [other, stale],
    };
    const response = await handle(charge({ key, ttl }), () => given);
    expect(response.extensions?.[0]).toBe(other);
    expect(dataOf(response)).toMatchObject({ key, acquired: true });
    expect(given.extensions).toEqual([other, stale]);
  });

  test("that extends its lock tells the new end", async () => {
    const key = newKey();
    const response = await handle(charge({ key, ttl }), async (request, lock) => {
      expect(await lock?.extend(3_600_000)).toMatchObject({ ok: true });
      return succeed(request);
    });
    const leftMs = Date.parse(dataOf(response).expires_at as string) - Date.now();
    expect(leftMs).toBeGreaterThan(3_500_000);
  });

  test("whose lock is gone when it ends says so", async () => {
    const key = newKey();
    const response = await handle(charge({ key, ttl }), async (request) => {
      await backend.forceRelease(fullKey(key));
      return succeed(request);
    });
    expect(response.result).toEqual({ status: "succeeded" });
    expect(dataOf(response)).toMatchObject({ acquired: true, lost: true });
  });

  test("that outlives its lock says so, and leaves the next holder alone", async () => {
    const key = newKey();
    const short = { value: 1, unit: "millisecond" };
    const block = { value: 10, unit: "second" };
    const response = await handle(charge({ key, ttl: short }), async (request) => {
      const next = await handle(charge({ key, ttl, block, auto_release: false }), succeed);
      expect(dataOf(next)).toMatchObject({ acquired: true });
      return succeed(request);
    });
    expect(dataOf(response)).toMatchObject({ acquired: true, lost: true });
    expect(await isLocked(key)).toBe(true);
  });
});

describe("errors", () => {
  test("know whether a retry helps, out of JSON's sight", async () => {
    const { handle } = createAtomicLock(backend);
    const key = newKey();
    await handle(charge({ key, ttl, auto_release: false }), succeed);
    const block = { value: 1, unit: "millisecond" };
    const release = (owner: string, of = key) => system(RELEASE, { key: fullKey(of), owner });
    for (const [request, code, retryable] of [
      [charge({ key, ttl }), "LOCK_ACQUISITION_FAILED", true],
      [charge({ key, ttl, block }), "LOCK_TIMEOUT", true],
      [release("other"), "LOCK_OWNERSHIP_MISMATCH", false],
      [release("other", newKey()), "LOCK_NOT_FOUND", false],
      [charge({}), "INVALID_ARGUMENTS", false],
    ] as const) {
      const [error] = (await handle(request, unreachable)).errors ?? [];
      expect(error).toMatchObject({ code, retryable });
      expect(JSON.stringify(error)).not.toContain("retryable");
    }
  });

  test("tell a lock that somebody freed meanwhile from one that is not there", async () => {
    const key = newKey();
    // Somebody else is faster, right after the lookup.
    const raced: SyncGuardBackend = {
      ...backend,
      release: async (opts) => {
        await backend.forceRelease(fullKey(key));
        return await backend.release(opts);
      },
    };
    const { handle } = createAtomicLock(raced);
    await handle(charge({ key, ttl, owner: "me", auto_release: false }), succeed);
    const release = system(RELEASE, { key: fullKey(key), owner: "me" });
    const [error] = (await handle(release, unreachable)).errors ?? [];
    expect(error).toMatchObject({
      code: "LOCK_ALREADY_RELEASED",
      details: { key: fullKey(key) },
      retryable: false,
    });
  });

  test("of the store are thrown, not answered", async () => {
    const failure = new LockError("ServiceUnavailable", "store is down");
    const down: SyncGuardBackend = {
      ...backend,
      acquire: (): Promise<never> => Promise.reject(new LockError("AuthFailed", "no")),
      lookup: () => Promise.reject(failure),
    };
    const { handle, functions } = createAtomicLock(down);
    expect((await lockError(handle(charge({ key: "k", ttl }), unreachable))).code).toBe(
      "AuthFailed",
    );
    const status = system(STATUS, { key: "lock:k" });
    expect(await rejection(functions[STATUS](status))).toBe(failure);
  });
});

describe("createAtomicLock", () => {
  test("knows its names", () => {
    const lock = createAtomicLock(backend);
    expect(lock.urn).toBe(URN);
    expect(Object.keys(lock.functions).sort()).toEqual([FORCE_RELEASE, RELEASE, STATUS].sort());
    expect(Object.isFrozen(lock) && Object.isFrozen(lock.functions)).toBe(true);
  });

  test("works over telemetry", async () => {
    const events: string[] = [];
    const { handle } = createAtomicLock(
      withTelemetry(backend, { onEvent: ({ type, result }) => events.push(`${type} ${result}`) }),
      { authorize: () => true },
    );
    const key = newKey();
    const kept = await handle(charge({ key, ttl, auto_release: false }), succeed);
    const release = system(RELEASE, { key: fullKey(key), owner: ownerOf(kept) });
    expect((await handle(release, unreachable)).result).toMatchObject({ released: true });
    const force = system(FORCE_RELEASE, { key: fullKey(key) });
    expect(codes(await handle(force, unreachable))).toEqual(["LOCK_NOT_FOUND"]);
    expect(events).toEqual(["acquire ok", "lookup ok", "release ok", "forceRelease fail"]);
  });

  test("refuses what it cannot work with", async () => {
    const fake: LockBackendLike = fakeBackend();
    const error = thrownLockError(() => createAtomicLock(fake as SyncGuardBackend));
    expect(error.code).toBe("InvalidArgument");
    expect(error.message).toContain("owner labels");
    for (const wrong of [undefined, null, {}, "redis://localhost"]) {
      expect(thrownLockError(() => createAtomicLock(wrong as never)).message).toBe(
        "backend must be a LockBackend",
      );
    }
    for (const [options, message] of [
      [null, "options must be an object"],
      [{ authorize: true }, "authorize must be a function"],
      [{ onReleaseError: "log" }, "onReleaseError must be a function"],
    ]) {
      expect(thrownLockError(() => createAtomicLock(backend, options as never)).message).toBe(
        message,
      );
    }
    const { handle, functions } = createAtomicLock(backend);
    const request = charge({ key: "k", ttl });
    for (const [call, message] of [
      [() => handle(null as never, succeed), "request must be an object"],
      [() => handle(request, undefined as never), "next must be a function"],
      [() => handle(request, succeed, null as never), "options must be an object"],
      [() => handle(request, succeed, { signal: 1 as never }), "signal must be an AbortSignal"],
      [() => functions[STATUS](undefined as never), "request must be an object"],
      [() => functions[STATUS]({} as never), "request.call must be an object"],
    ] as [() => Promise<unknown>, string][]) {
      expect((await lockError(call())).message).toBe(message);
    }
  });

  test("says when lookups do not show owners", async () => {
    const hiding: SyncGuardBackend = {
      ...backend,
      lookup: async () => ({
        keyHash: "",
        lockIdHash: "",
        expiresAtMs: 1,
        acquiredAtMs: 1,
        fence: "",
      }),
    };
    const { handle } = createAtomicLock(hiding);
    const error = await lockError(handle(system(STATUS, { key: "lock:k" }), unreachable));
    expect(error).toMatchObject({ code: "Internal" });
    expect(error.message).toContain("who owns a lock");
  });

  test("leaves a throwing authorize to the server, and the lock alone", async () => {
    const failure = new Error("directory is down");
    const { handle } = createAtomicLock(backend, {
      authorize: () => {
        throw failure;
      },
    });
    const key = newKey();
    await handle(charge({ key, ttl, auto_release: false }), succeed);
    const force = handle(system(FORCE_RELEASE, { key: fullKey(key) }), unreachable);
    expect(await rejection(force)).toBe(failure);
    expect(await isLocked(key)).toBe(true);
  });
});
