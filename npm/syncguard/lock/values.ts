import { core } from "../native/provided.js";
import { FENCE_THRESHOLDS } from "./defaults.js";
import type { AcquireOk, AcquireResult, BackendCapabilities, Fence, HashId } from "./types.js";

/**
 * The key in Unicode NFC, as every backend compares keys.
 *
 * @throws LockError `InvalidArgument` if it is not a string, empty, or longer than 512 bytes of UTF-8
 * @example
 * ```ts
 * import { normalizeAndValidateKey } from "syncguard";
 *
 * console.log(normalizeAndValidateKey("cafe\u0301") === "caf\u00e9"); // true
 * ```
 */
export function normalizeAndValidateKey(key: string): string {
  return core.normalizeAndValidateKey(key);
}

/**
 * Checks that a lock id is 22 characters of base64url.
 *
 * @throws LockError `InvalidArgument` if it is not
 * @example
 * ```ts
 * import { generateLockId, validateLockId } from "syncguard";
 *
 * validateLockId(generateLockId());
 * ```
 */
export function validateLockId(lockId: string): void {
  core.validateLockId(lockId);
}

/**
 * A new lock id: 16 bytes from the system's random source, as 22 characters of base64url.
 *
 * @example
 * ```ts
 * import { generateLockId } from "syncguard";
 *
 * const lockId = generateLockId();
 * ```
 */
export function generateLockId(): string {
  return core.generateLockId();
}

/**
 * A fingerprint by which a key or a lock id can be recognised in logs: 24 hexadecimal digits. It does not hide the key,
 * because it is not cryptographic: a short key can be read from it (`hashKey("a")` starts with 61, the code of "a"), and
 * others can be found by trying. Do not show it to anybody who must not know the keys.
 *
 * @example
 * ```ts
 * import { hashKey } from "syncguard";
 *
 * console.log("waiting for lock", hashKey("report:nightly"));
 * ```
 */
export function hashKey(value: string): HashId {
  return core.hashKey(value);
}

/**
 * A number as a fencing token: 15 digits, zero-padded. Fractions are cut off.
 *
 * @throws LockError `InvalidArgument` if it is negative, not a number, or has more than 15 digits
 * @example
 * ```ts
 * import { formatFence } from "syncguard/common";
 *
 * console.log(formatFence(42)); // "000000000000042"
 * ```
 */
export function formatFence(value: number | bigint): Fence {
  const whole = Number.isFinite(value) ? BigInt(Math.trunc(value as number)) : value;
  return core.formatFence(String(whole));
}

/**
 * Warns on the console that the fences of a key are running out.
 *
 * @param fence - the token that was just granted
 * @param key - the name to print for the key, unchanged; the backends of this package pass `hashKey(key)`
 * @example
 * ```ts
 * import { FENCE_THRESHOLDS, formatFence, hashKey, logFenceWarning } from "syncguard/common";
 *
 * const fence = formatFence(90_000_000_000_001n);
 * if (fence > FENCE_THRESHOLDS.WARN) logFenceWarning(fence, hashKey("report:nightly"));
 * ```
 */
export function logFenceWarning(fence: Fence | number, key: string): void {
  console.warn(
    `[SyncGuard] Fence counter approaching limit: fence=${fence}, key=${key}, max=${FENCE_THRESHOLDS.MAX}`,
  );
}

/**
 * Whether the result of an acquisition has a fencing token; for code that works with any backend.
 *
 * @example
 * ```ts
 * import { hasFence, type LockBackend } from "syncguard";
 *
 * async function attempt(anyBackend: LockBackend): Promise<string> {
 *   const result = await anyBackend.acquire({ key: "report:nightly", ttlMs: 30_000 });
 *   if (!result.ok) return "held by another";
 *   return hasFence(result) ? result.fence : "held without a fence";
 * }
 * ```
 */
export function hasFence<C extends BackendCapabilities>(
  result: AcquireResult<C>,
): result is AcquireOk<C> & {
  /** The fencing token. */
  fence: Fence;
} {
  const { fence } = result as { fence?: unknown };
  return result.ok && typeof fence === "string" && fence !== "";
}
