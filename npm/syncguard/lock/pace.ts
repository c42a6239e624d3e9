import type { WaitingDefaults } from "./defaults.js";

/** However impatient those in a queue are, they let the store rest for so many milliseconds between two attempts. */
const SHORTEST_MS = 10;

/**
 * How long somebody would pause before the next attempt who has waited for `elapsedMs`, had it asked all the time by itself,
 * with `random` from [0, 1) for the jitter; `Infinity` once its retries would be used up. `RetryPolicy::pace_ms` in
 * crates/syncguard/src/waiting/retry.rs is the same for Rust.
 */
export function paceMs(policy: WaitingDefaults, elapsedMs: number, random: number): number {
  const { maxRetries, retryDelayMs, backoff } = policy;
  const passed = elapsedMs > 0 ? elapsedMs / retryDelayMs : 0;
  // Before retry n, waits that double add up to 2ⁿ⁻¹ - 1 times the first.
  const retries = Math.floor(backoff === "fixed" ? passed : Math.log2(passed + 1));
  if (maxRetries !== Infinity && retries >= maxRetries) return Infinity;
  return Math.max(delayMs(policy, retries, random), SHORTEST_MS);
}

/** How long to wait after so many retries, by the rules for polling. */
export function delayMs(
  {
    retryDelayMs,
    maxRetryDelayMs,
    backoff,
    jitter,
  }: Omit<WaitingDefaults, "maxRetries" | "timeoutMs">,
  retries: number,
  random: number,
): number {
  const grown = backoff === "fixed" ? retryDelayMs : retryDelayMs * 2 ** Math.min(retries, 1_000);
  const whole = Math.min(grown, Math.max(maxRetryDelayMs, retryDelayMs));
  if (jitter === "none") return whole;
  return jitter === "full" ? random * whole : (whole + random * whole) / 2;
}
