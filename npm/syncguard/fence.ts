import { FENCE_THRESHOLDS } from "./constants.js";
import { core } from "./native.js";
import type { AcquireOk, AcquireResult, BackendCapabilities, Fence } from "./types.js";

/**
 * The fencing token of a number: 15 digits, zero-padded. Fractions are cut off.
 *
 * @throws LockError `InvalidArgument` if it is negative, no number, or has over 15 digits
 */
export function formatFence(value: number | bigint): Fence {
  const whole = Number.isFinite(value) ? BigInt(Math.trunc(value as number)) : value;
  return core.formatFence(String(whole));
}

/**
 * Warns on the console that the fences of a key are running out.
 *
 * @param key - what to call the key, which is printed as it is; the backends of this package give `hashKey(key)`
 */
export function logFenceWarning(fence: Fence | number, key: string): void {
  console.warn(
    `[SyncGuard] Fence counter approaching limit: fence=${fence}, key=${key}, max=${FENCE_THRESHOLDS.MAX}`,
  );
}

/** Whether an acquisition gave a fencing token; for code that does not know its backend. */
export function hasFence<C extends BackendCapabilities>(
  result: AcquireResult<C>,
): result is AcquireOk<C> & { fence: Fence } {
  const { fence } = result as { fence?: unknown };
  return result.ok && typeof fence === "string" && fence !== "";
}
