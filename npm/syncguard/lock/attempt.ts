/** What lock() and the backends of this package tell each other out of users' sight. */

type LimitedAttempt = { readonly "syncguard.attemptTimeoutMs"?: number };

/**
 * Tells how long an attempt may take, in milliseconds, so that it ends in time when the store hangs. Not enumerable:
 * backends that do not know it see `{ key, ttlMs, signal }`.
 */
export function limitAttempt(args: object, limitMs: number): void {
  Object.defineProperty(args, "syncguard.attemptTimeoutMs", { value: limitMs });
}

/**
 * How long an attempt may take, if that was told. Under a name and not under a symbol: V8 caches that most arguments do
 * not have it only for names.
 */
export function attemptTimeoutMs(args: object): number | undefined {
  return (args as LimitedAttempt)["syncguard.attemptTimeoutMs"];
}

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
