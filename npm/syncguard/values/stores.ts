/** What stores have to know: for authors of backends. */

import { addon, callAddon } from "../native/addon.js";
import { checkText } from "./values.js";

/**
 * The key under which a store keeps a lock: `prefix:key`, with the key in NFC, or a hash of it where that is too long.
 *
 * @param prefix - namespace; trailing colons are dropped; may be empty
 * @param key - the user's key
 * @param limitBytes - the store's limit, in bytes of UTF-8; see `BACKEND_LIMITS`
 * @param reserveBytes - bytes to keep free for derived keys; see `RESERVE_BYTES`
 * @throws LockError `InvalidArgument` if the key is empty or the prefix leaves no room
 * @example
 * ```ts
 * import { BACKEND_LIMITS, makeStorageKey, RESERVE_BYTES } from "syncguard";
 *
 * const stored = makeStorageKey("app", "report:nightly", BACKEND_LIMITS.REDIS, RESERVE_BYTES.REDIS);
 * console.log(stored); // "app:report:nightly"
 * ```
 */
export function makeStorageKey(
  prefix: string,
  key: string,
  limitBytes: number,
  reserveBytes: number,
): string {
  checkText(prefix, "Prefix");
  checkText(key, "Key");
  return callAddon(() => addon().makeStorageKey(prefix, key, limitBytes, reserveBytes));
}

/**
 * Whether a lock that ends at `expiresAtMs` counts as held at `nowMs`. All in milliseconds.
 *
 * @param toleranceMs - how long after its end it still counts as held: `TIME_TOLERANCE_MS` for every backend of this package
 * @example
 * ```ts
 * import { isLive, TIME_TOLERANCE_MS } from "syncguard";
 *
 * console.log(isLive(10_000, 10_500, TIME_TOLERANCE_MS)); // true: within the tolerance
 * console.log(isLive(10_000, 11_000, TIME_TOLERANCE_MS)); // false
 * ```
 */
export function isLive(expiresAtMs: number, nowMs: number, toleranceMs: number): boolean {
  return callAddon(() => addon().isLive(expiresAtMs, nowMs, toleranceMs));
}

/**
 * Milliseconds since the Unix epoch from the reply of Redis' TIME: seconds and microseconds, as decimal strings.
 *
 * @example
 * ```ts
 * import { calculateRedisServerTimeMs } from "syncguard";
 *
 * console.log(calculateRedisServerTimeMs(["1700000000", "250000"])); // 1700000000250
 * ```
 */
export function calculateRedisServerTimeMs(timeTuple: [string, string]): number {
  const [seconds, microseconds] = timeTuple.map((text) => Number.parseInt(text, 10));
  return callAddon(() => addon().redisServerTimeMs(seconds as number, microseconds as number));
}
