import { LockError } from "./errors.js";

/**
 * Throws if the signal is aborted. For backends whose driver knows no signals.
 *
 * @throws LockError `Aborted`
 */
export function checkAborted(signal?: AbortSignal): void {
  if (signal?.aborted === true) {
    throw new LockError("Aborted", "Operation aborted by signal", { cause: signal.reason });
  }
}

/**
 * Resolves after `ms` milliseconds, or rejects as soon as the signal is aborted.
 *
 * @throws LockError `Aborted`
 */
export async function delay(ms: number, signal?: AbortSignal): Promise<void> {
  checkAborted(signal);
  await new Promise<void>((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener("abort", end);
  });
  checkAborted(signal);
}
