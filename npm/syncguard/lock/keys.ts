import { core } from "../native/core.js";
import type { HashId } from "./types.js";

/**
 * The key in Unicode NFC.
 *
 * @throws LockError `InvalidArgument` if it is no string, empty, or over 512 bytes of UTF-8
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
 * 24 hexadecimal digits by which a key or a lock id can be recognised in logs: a fingerprint, and no secret. It is not
 * cryptographic. A short key can be read from it (`hashKey("a")` starts with 61, the code of "a"), any other can be found
 * by trying. Where keys must not become known, do not show it to those who must not know them.
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
