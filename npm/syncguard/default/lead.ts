import { runLeader } from "../backend/lead.js";
import type {
  BackendCapabilities,
  FencingCapabilities,
  Leadership,
  LeadOptions,
  LockBackendLike,
} from "../values/types.js";
import { getDefaultBackend } from "./backend.js";

/** The function of `lead()`. */
type Work<C extends BackendCapabilities> = (leadership: Leadership<C>) => unknown;

/**
 * `backend.lead()` for any backend, also for one of your own.
 *
 * @throws LockError `InvalidArgument` that names the argument
 * @example
 * ```ts
 * import { lead, type LockBackendLike } from "syncguard";
 *
 * async function schedule(mine: LockBackendLike, stopping: AbortSignal): Promise<void> {
 *   await lead(mine, "scheduler", ({ signal }) => runUntil(signal), { signal: stopping });
 * }
 *
 * async function runUntil(signal: AbortSignal): Promise<void> {
 *   while (!signal.aborted) await new Promise((resolve) => setTimeout(resolve, 1_000)); // the work
 * }
 * ```
 */
export function lead<C extends BackendCapabilities = BackendCapabilities>(
  backend: LockBackendLike<C>,
  key: string,
  fn: Work<C>,
  options?: LeadOptions,
): Promise<void>;
/**
 * `backend.lead()` on the default backend, which is that of `lock()`.
 *
 * @throws LockError `InvalidArgument` that names the argument
 * @example
 * ```ts
 * import { lead } from "syncguard";
 *
 * const stopping = new AbortController();
 * process.once("SIGTERM", () => stopping.abort());
 * await lead("scheduler", ({ term }) => console.log("leads, term", term), { signal: stopping.signal });
 * ```
 */
export function lead(
  key: string,
  fn: Work<FencingCapabilities>,
  options?: LeadOptions,
): Promise<void>;
// Async, so that every error is a rejection.
export async function lead<C extends BackendCapabilities>(
  first: LockBackendLike<C> | string,
  second: string | Work<FencingCapabilities>,
  third?: Work<C> | LeadOptions,
  fourth?: LeadOptions,
): Promise<void> {
  if (typeof first === "string") {
    const [fn, options] = [second as Work<FencingCapabilities>, third as LeadOptions | undefined];
    await runLeader(getDefaultBackend(), first, fn, options);
  } else {
    await runLeader(first, second as string, third as Work<C>, fourth);
  }
}
