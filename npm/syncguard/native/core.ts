/** The core's pure functions: keys, lock ids, fences and times. */

import { addon, callAddon } from "./addon.js";
import { provide } from "./provided.js";
import { checkText, lockIdText } from "./text.js";

export const core = {
  normalizeAndValidateKey(key: string): string {
    checkText(key, "Key");
    return callAddon(() => addon().normalizeKey(key));
  },
  validateLockId(lockId: string): void {
    callAddon(() => addon().validateLockId(lockIdText(lockId)));
  },
  validateTtl(ttlMs: number): void {
    // NaN stands for whatever is not a number: neither is a TTL.
    callAddon(() => addon().validateTtl(typeof ttlMs === "number" ? ttlMs : NaN));
  },
  validateOwner(owner: string): void {
    checkText(owner, "owner");
    callAddon(() => addon().validateOwner(owner));
  },
  generateLockId: (): string => callAddon(() => addon().generateLockId()),
  hashKey: (value: string): string => callAddon(() => addon().hashKey(value)),
  makeStorageKey(prefix: string, key: string, limitBytes: number, reserveBytes: number): string {
    checkText(prefix, "Prefix");
    checkText(key, "Key");
    return callAddon(() => addon().makeStorageKey(prefix, key, limitBytes, reserveBytes));
  },
  formatFence: (decimal: string): string => callAddon(() => addon().formatFence(decimal)),
  isFenceNearLimit: (fence: string): boolean => callAddon(() => addon().isFenceNearLimit(fence)),
  isLive: (expiresAtMs: number, nowMs: number, toleranceMs: number): boolean =>
    callAddon(() => addon().isLive(expiresAtMs, nowMs, toleranceMs)),
  redisServerTimeMs: (seconds: number, microseconds: number): number =>
    callAddon(() => addon().redisServerTimeMs(seconds, microseconds)),
};

provide(core);
