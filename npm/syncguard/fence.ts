import { FENCE_THRESHOLDS } from "./constants.js";
import { hashKey } from "./keys.js";
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
 * Warns on the console that the fences of a key run out.
 *
 * The line shows `hashKey(key)` in the place of the key: logs that nobody asked for name no keys.
 */
export function logFenceWarning(fence: Fence, key: string): void {
  console.warn(
    `[SyncGuard] Fence counter approaching limit: fence=${fence}, key=${hashKey(key)}, max=${FENCE_THRESHOLDS.MAX}`,
  );
}

/** Whether an acquisition gave a fencing token; for code that does not know its backend. */
export function hasFence<C extends BackendCapabilities>(
  result: AcquireResult<C>,
): result is AcquireOk<C> & { fence: Fence } {
  return result.ok && typeof (result as { fence?: unknown }).fence === "string";
}
