// The rules for keys, lock ids and fences. The core has the same rules, and the vectors in crates/syncguard/tests hold both together.
//
// This room knows what users name and give: keys, ids, claims, periods, times, and the types of the API. It must not know what becomes
// of them. Nothing here asks a store, holds a lock or waits.

import { randomBytes } from "node:crypto";
import { constants } from "../native/constants.js";
import { invalid } from "../options/validation.js";
import { FENCE_THRESHOLDS, MAX_KEY_LENGTH_BYTES } from "./defaults.js";
import type { AcquireOk, AcquireResult, BackendCapabilities, Fence, HashId } from "./types.js";

const { lockIdLength, fenceDigits } = constants;
const LOCK_ID = new RegExp(`^[\\w-]{${lockIdLength}}$`);

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
  checkText(key, "Key");
  if (key === "") throw invalid("Key must not be empty");
  const text = key.normalize();
  if (Buffer.byteLength(text) > MAX_KEY_LENGTH_BYTES) {
    throw invalid(
      `Key exceeds maximum length of ${MAX_KEY_LENGTH_BYTES} bytes after normalization`,
    );
  }
  return text;
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
  if (typeof lockId === "string" && LOCK_ID.test(lockId)) return;
  // The error describes the text and does not show it: with a line break at its end, it would be a lock id.
  const got = describeLockId(lockId);
  throw invalid(
    `Invalid lockId format. Expected ${lockIdLength} base64url characters, got: ${got}`,
  );
}

function describeLockId(lockId: unknown): string {
  if (!lockId) return "empty/null";
  if (typeof lockId !== "string") return `a value of type ${typeof lockId}`;
  const { length } = Array.from(lockId);
  return `a string of length ${length}${length === lockIdLength ? " with other characters" : ""}`;
}

/**
 * Refuses a value that is not well-formed text. All lone surrogates would become U+FFFD on the way to a store, so that two keys
 * would be one.
 */
export function checkText(text: unknown, name: string): asserts text is string {
  if (typeof text !== "string") {
    const hint = ArrayBuffer.isView(text) ? ": give bytes as text, as buffer.toString() does" : "";
    throw invalid(`${name} must be a string${hint}`);
  }
  if (!text.isWellFormed()) throw invalid(`${name} must be well-formed Unicode`);
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
  return randomBytes(16).toString("base64url");
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
  if (typeof value !== "string") throw invalid("what is hashed must be a string");
  const text = value.normalize();
  let [first, second, third] = [0, 0, 0];
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    first = ((first << 5) - first + unit) | 0;
    second = ((second << 7) - second + 3 * unit) | 0;
    third = ((third << 11) - third + 7 * unit) | 0;
  }
  return [first, second, third].map((sum) => (sum >>> 0).toString(16).padStart(8, "0")).join("");
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
  const decimal = String(whole);
  if (decimal.startsWith("-")) throw invalid("Fence must be non-negative");
  if (!/^\d+$/.test(decimal)) throw invalid("Fence must be a whole number");
  const digits = decimal.replace(/^0+/, "");
  if (digits.length > fenceDigits) {
    throw invalid(`Fence exceeds ${fenceDigits}-digit limit: ${digits}`);
  }
  return digits.padStart(fenceDigits, "0");
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

/** How events name several keys. */
export function hashesOf(keys: readonly string[]): { claims: number; keyHashes: HashId[] } {
  return { claims: keys.length, keyHashes: keys.map((key) => hashKey(key)) };
}
