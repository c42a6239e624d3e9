import { core } from "../native/core.js";

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
