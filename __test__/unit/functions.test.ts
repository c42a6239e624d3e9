import { describe, expect, test, vi } from "vitest";
import * as syncguard from "syncguard";
import {
  attachRawData,
  BACKEND_DEFAULTS,
  BACKEND_LIMITS,
  calculateRedisServerTimeMs,
  FAILURE_REASON,
  FENCE_THRESHOLDS,
  formatFence,
  generateLockId,
  hasFence,
  hashKey,
  isLive,
  LOCK_DEFAULTS,
  logFenceWarning,
  makeStorageKey,
  mapBackendObservation,
  mapFirestoreConditions,
  mapRedisScriptResult,
  mapToMutationResult,
  MAX_KEY_LENGTH_BYTES,
  mergeAcquisitionConfig,
  mergeBackendConfig,
  type MutationCondition,
  normalizeAndValidateKey,
  RESERVE_BYTES,
  sanitizeLockInfo,
  TIME_TOLERANCE_MS,
  validateLockId,
} from "syncguard/common";
import { thrownLockError } from "../support/errors";

const wrong = [undefined, null, 7, {}, [], true] as unknown as string[];

describe("constants", () => {
  test("are those of the contract", () => {
    expect(TIME_TOLERANCE_MS).toBe(1000);
    expect(MAX_KEY_LENGTH_BYTES).toBe(512);
    expect(BACKEND_DEFAULTS).toEqual({ ttlMs: 30_000 });
    expect(LOCK_DEFAULTS).toEqual({
      maxRetries: 10,
      retryDelayMs: 100,
      timeoutMs: 5_000,
      backoff: "exponential",
      jitter: "equal",
    });
    expect(FENCE_THRESHOLDS).toEqual({ MAX: "900000000000000", WARN: "090000000000000" });
    expect(BACKEND_LIMITS).toEqual({ REDIS: 1000, POSTGRES: 1700, FIRESTORE: 1500 });
    expect(RESERVE_BYTES).toEqual({ REDIS: 26, POSTGRES: 0, FIRESTORE: 0 });
  });

  test("cannot be changed", () => {
    for (const constants of [
      BACKEND_DEFAULTS,
      LOCK_DEFAULTS,
      FENCE_THRESHOLDS,
      BACKEND_LIMITS,
      RESERVE_BYTES,
    ]) {
      expect(Object.isFrozen(constants)).toBe(true);
    }
  });
});

describe("keys and lock ids", () => {
  test.each(wrong)("a key must be a string, not %s", (key) => {
    expect(thrownLockError(() => normalizeAndValidateKey(key))).toMatchObject({
      code: "InvalidArgument",
      message: "Key must be a string",
    });
  });

  test.each([
    ["", "empty/null"],
    [null, "empty/null"],
    [undefined, "empty/null"],
    ["short", "a string of length 5"],
    ["a".repeat(23), "a string of length 23"],
    [`${"a".repeat(21)}=`, "a string of length 22 with other characters"],
    [`${"a".repeat(22)}\n`, "a string of length 23"],
    [42, "a value of type number"],
    [["a".repeat(22)], "a value of type object"],
  ])("%j is no lock id, and the error does not show it", (lockId, got) => {
    const error = thrownLockError(() => {
      validateLockId(lockId as string);
    });
    expect(error.code).toBe("InvalidArgument");
    expect(error.message).toBe(
      `Invalid lockId format. Expected 22 base64url characters, got: ${got}`,
    );
  });

  test.each(["\ud800", "a\udc00b", "\udbff\udbff"])("%j is no Unicode", (lone) => {
    const message = "Key must be well-formed Unicode";
    const refused = { code: "InvalidArgument", message };
    expect(thrownLockError(() => normalizeAndValidateKey(lone))).toMatchObject(refused);
    expect(thrownLockError(() => makeStorageKey("p", lone, 100, 0))).toMatchObject(refused);
    expect(thrownLockError(() => makeStorageKey(lone, "k", 100, 0)).message).toBe(
      "Prefix must be well-formed Unicode",
    );
    // A hash takes code units for what they are.
    expect(hashKey("\ud800")).not.toBe(hashKey("\udc00"));
  });

  test("generated lock ids are valid and differ", () => {
    const ids = Array.from({ length: 100 }, () => generateLockId());
    for (const id of ids) expect(() => validateLockId(id)).not.toThrow();
    expect(new Set(ids).size).toBe(100);
  });

  test("storage keys that cannot be made are refused", () => {
    const message = (prefix: string, key: string, limit: number): string =>
      thrownLockError(() => makeStorageKey(prefix, key, limit, 0)).message;
    expect(message("p", "", 100)).toBe("Key must not be empty");
    expect(message("p".repeat(100), "k", 100)).toMatch(
      /^Prefix exceeds backend limit after accounting for reserved bytes/,
    );
    expect(message("", "k".repeat(30), 20)).toMatch(
      /^Key exceeds backend limits even after hashing/,
    );
  });

  test("the fence key of two keys is never the same, truncated or not", () => {
    const { REDIS: limit } = BACKEND_LIMITS;
    const { REDIS: reserve } = RESERVE_BYTES;
    const keys = ["a", "b", "k".repeat(512), "k".repeat(511), "é".repeat(256)];
    const fenceKeys = keys.map((key) => {
      const base = makeStorageKey("p".repeat(470), key, limit, reserve);
      return makeStorageKey("p".repeat(470), `fence:${base}`, limit, reserve);
    });
    expect(new Set(fenceKeys).size).toBe(keys.length);
  });
});

describe("fences", () => {
  test("numbers lose their fractions", () => {
    expect(formatFence(1.9)).toBe("000000000000001");
    expect(formatFence(-0.5)).toBe("000000000000000");
    expect(formatFence(12n)).toBe("000000000000012");
  });

  test.each([Number.NaN, Infinity, -Infinity, 1e300, -1, -1n, 10n ** 15n])(
    "%s is no fence",
    (value) => {
      expect(thrownLockError(() => formatFence(value)).code).toBe("InvalidArgument");
    },
  );

  test("hasFence needs a lock and a fence", () => {
    const plain = { ok: true, lockId: "l", expiresAtMs: 1 } as const;
    const fenced = { ...plain, fence: "000000000000001" };
    expect(hasFence(fenced)).toBe(true);
    expect(hasFence(plain)).toBe(false);
    const empty = { ...plain, fence: "" };
    expect(hasFence(empty)).toBe(false);
    expect(hasFence({ ok: false, reason: "locked" })).toBe(false);
  });

  test("the warning shows what it is given", () => {
    const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
    logFenceWarning("090000000000001", "some:key");
    logFenceWarning(90_000_000_000_002, "other");
    const line = "[SyncGuard] Fence counter approaching limit: fence=";
    expect(warn.mock.calls).toEqual([
      [`${line}090000000000001, key=some:key, max=900000000000000`],
      [`${line}90000000000002, key=other, max=900000000000000`],
    ]);
  });
});

describe("time", () => {
  test.each([
    [1001, 2000, 1000, true],
    [1000, 2000, 1000, false],
    [2000, 2000, 0, false],
    [2001, 2000, 0, true],
  ])("isLive(%d, %d, %d) is %s", (expiresAtMs, nowMs, toleranceMs, live) => {
    expect(isLive(expiresAtMs, nowMs, toleranceMs)).toBe(live);
  });

  test("Redis' time is cut to milliseconds", () => {
    expect(calculateRedisServerTimeMs(["1700000000", "123999"])).toBe(1_700_000_000_123);
  });
});

describe("mutations", () => {
  const conditions: Record<MutationCondition, string | undefined> = {
    succeeded: undefined,
    "observable-expired": "expired",
    "never-existed": "not-found",
    "ownership-mismatch": "not-found",
    "cleaned-up-after-expiry": "not-found",
    "ambiguous-unknown": "not-found",
  };

  test.each(Object.entries(conditions))("%s is %s", (name, reason) => {
    const result = mapToMutationResult(name as MutationCondition);
    expect(result).toStrictEqual(reason === undefined ? { ok: true } : { ok: false, reason });
    expect(Reflect.ownKeys(result)).toEqual(reason === undefined ? ["ok"] : ["ok", "reason"]);
  });

  test("what results carry for telemetry is under a symbol of that name", () => {
    expect(FAILURE_REASON.description).toBe("failureReason");
  });

  test.each([
    [1, "succeeded"],
    [-2, "observable-expired"],
    [-1, "never-existed"],
    [0, "ownership-mismatch"],
    [2, "ambiguous-unknown"],
    [Number.NaN, "ambiguous-unknown"],
  ])("a Redis script's %d means %s", (code, condition) => {
    expect(mapRedisScriptResult(code)).toBe(condition);
    expect(mapBackendObservation(code)).toBe(condition);
  });

  test.each([
    [false, false, false, "never-existed"],
    [true, false, true, "ownership-mismatch"],
    [true, true, false, "observable-expired"],
    [true, true, true, "succeeded"],
  ])("a document: exists %s, ours %s, live %s means %s", (...row) => {
    const [documentExists, ownershipValid, live, condition] = row;
    const state = { documentExists, ownershipValid, isLive: live };
    expect(mapFirestoreConditions(state)).toBe(condition);
    expect(mapBackendObservation(state)).toBe(condition);
  });
});

describe("lock information", () => {
  const raw = { key: "k", lockId: "l", expiresAtMs: 2, acquiredAtMs: 1, fence: "000000000000001" };

  test("is sanitized", () => {
    const fencing = sanitizeLockInfo(raw, { supportsFencing: true, timeAuthority: "server" });
    expect(fencing).toEqual({
      keyHash: hashKey("k"),
      lockIdHash: hashKey("l"),
      expiresAtMs: 2,
      acquiredAtMs: 1,
      fence: "000000000000001",
    });
    const plain = sanitizeLockInfo(raw, { supportsFencing: false, timeAuthority: "server" });
    expect(plain).not.toHaveProperty("fence");
  });

  test("carries raw data out of sight", () => {
    const info = attachRawData({ a: 1 }, { key: "k", lockId: "l" });
    expect(Reflect.get(info, Symbol.for("syncguard.rawData"))).toEqual({ key: "k", lockId: "l" });
    expect(Reflect.ownKeys({ ...info })).toEqual(["a"]);
    expect(JSON.stringify(info)).toBe('{"a":1}');
  });
});

describe("configuration", () => {
  test("defaults fill what is left out", () => {
    expect(mergeAcquisitionConfig()).toEqual(LOCK_DEFAULTS);
    expect(mergeAcquisitionConfig({ maxRetries: 0, jitter: undefined })).toEqual({
      ...LOCK_DEFAULTS,
      maxRetries: 0,
    });
    const { signal } = new AbortController();
    const all = {
      maxRetries: 1,
      retryDelayMs: 2,
      backoff: "fixed",
      jitter: "none",
      timeoutMs: 3,
      signal,
    } as const;
    expect(mergeAcquisitionConfig(all)).toStrictEqual(all);
    expect(mergeAcquisitionConfig({ signal }).signal).toBe(signal);
    expect(mergeAcquisitionConfig({ timeoutMs: null } as never)).toEqual(LOCK_DEFAULTS);
    expect(mergeBackendConfig()).toStrictEqual({ ttlMs: 30_000 });
    expect(mergeBackendConfig({ ttlMs: undefined })).toStrictEqual({ ttlMs: 30_000 });
    expect(mergeBackendConfig({ ttlMs: 5 })).toStrictEqual({ ttlMs: 5 });
  });
});

test("the entry point `syncguard` has no helpers for writers of backends", () => {
  expect(syncguard).not.toHaveProperty("FAILURE_REASON");
  expect(syncguard).not.toHaveProperty("createAutoLock");
});
