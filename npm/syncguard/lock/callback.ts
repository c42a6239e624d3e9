/** Calls a user's callback whose errors must not reach the lock: what it throws or rejects with is dropped. */
export function callQuietly(callback: () => unknown): void {
  try {
    const returned = callback();
    if (typeof (returned as PromiseLike<unknown> | undefined)?.then === "function") {
      Promise.resolve(returned).catch(() => undefined);
    }
  } catch {
    // Dropped, as said.
  }
}
