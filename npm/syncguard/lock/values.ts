import { core } from "../native/core.js";
import { FENCE_THRESHOLDS } from "./defaults.js";
import type { AcquireOk, AcquireResult, BackendCapabilities, Fence, HashId } from "./types.js";

/**
 * The key in Unicode NFC.
 *
 * @throws LockError `InvalidArgument` if it is not a string, empty, or longer than 512 bytes of UTF-8
 */
export function normalizeAndValidateKey(key: string): string {
  return core.normalizeAndValidateKey(key);
}

/**
 * Checks that a lock id is 22 characters of base64url.
 *
 * @throws LockError `InvalidArgument` if it is not
 */
export function validateLockId(lockId: string): void {
  core.validateLockId(lockId);
}

/** A new lock id: 16 bytes from the system's random source, as 22 characters of base64url. */
export function generateLockId(): string {
  return core.generateLockId();
}

/**
 * A fingerprint by which a key or a lock id can be recognised in logs: 24 hexadecimal digits. It does not hide the key,
 * because it is not cryptographic: a short key can be read from it (`hashKey("a")` starts with 61, the code of "a"), and
 * others can be found by trying. Do not show it to anybody who must not know the keys.
 */
export function hashKey(value: string): HashId {
  return core.hashKey(value);
}

/**
 * The key under which a store keeps a lock: `prefix:key`, with the key in NFC, or a hash of it where that is too long.
 *
 * @param prefix - namespace; trailing colons are dropped; may be empty
 * @param key - the user's key
 * @param limitBytes - the store's limit, in bytes of UTF-8; see `BACKEND_LIMITS`
 * @param reserveBytes - bytes to keep free for derived keys; see `RESERVE_BYTES`
 * @throws LockError `InvalidArgument` if the key is empty or the prefix leaves no room
 */
export function makeStorageKey(
  prefix: string,
  key: string,
  limitBytes: number,
  reserveBytes: number,
): string {
  return core.makeStorageKey(prefix, key, limitBytes, reserveBytes);
}

/**
 * A number as a fencing token: 15 digits, zero-padded. Fractions are cut off.
 *
 * @throws LockError `InvalidArgument` if it is negative, not a number, or has more than 15 digits
 */
export function formatFence(value: number | bigint): Fence {
  const whole = Number.isFinite(value) ? BigInt(Math.trunc(value as number)) : value;
  return core.formatFence(String(whole));
}

/**
 * Warns on the console that the fences of a key are running out.
 *
 * @param key - the name to print for the key, unchanged; the backends of this package pass `hashKey(key)`
 */
export function logFenceWarning(fence: Fence | number, key: string): void {
  console.warn(
    `[SyncGuard] Fence counter approaching limit: fence=${fence}, key=${key}, max=${FENCE_THRESHOLDS.MAX}`,
  );
}

/** Whether the result of an acquisition has a fencing token; for code that works with any backend. */
export function hasFence<C extends BackendCapabilities>(
  result: AcquireResult<C>,
): result is AcquireOk<C> & { fence: Fence } {
  const { fence } = result as { fence?: unknown };
  return result.ok && typeof fence === "string" && fence !== "";
}

/** Whether a lock that ends at `expiresAtMs` counts as held at `nowMs`. All in milliseconds. */
export function isLive(expiresAtMs: number, nowMs: number, toleranceMs: number): boolean {
  return core.isLive(expiresAtMs, nowMs, toleranceMs);
}

/** Milliseconds since the Unix epoch from the reply of Redis' TIME: seconds and microseconds, as decimal strings. */
export function calculateRedisServerTimeMs(timeTuple: [string, string]): number {
  return core.redisServerTimeMs(
    Number.parseInt(timeTuple[0], 10),
    Number.parseInt(timeTuple[1], 10),
  );
}
