/** What lock() and the backends of this package tell each other out of users' sight. */

/**
 * Under this symbol lock() tells how long an attempt may take, in milliseconds, so that it ends in time when the store
 * hangs. Not enumerable: backends that do not know it see `{ key, ttlMs, signal }`.
 */
export const ATTEMPT_TIMEOUT_MS: unique symbol = Symbol.for("syncguard.attemptTimeoutMs") as never;

/** Arguments of an acquisition that may carry the limit. */
export type LimitedAttempt = { readonly [ATTEMPT_TIMEOUT_MS]?: number };

const checking = new WeakSet();

/** Notes that a backend checks keys itself. */
export function markChecksKeys<Backend extends object>(backend: Backend): Backend {
  checking.add(backend);
  return backend;
}

/** Whether a backend is known to check keys itself. */
export function checksKeys(backend: object): boolean {
  return checking.has(backend);
}
