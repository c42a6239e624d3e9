/** Runs several operations of a backend as one call of the addon, if nobody can notice the difference. */

import type { Failure } from "../native/outcome.js";
import type { Store } from "../native/store.js";
import type { LockBackend } from "./types.js";

/**
 * Runs an operation on a backend's own store, as the backend would: with its checks before, with the key in errors, and
 * `close()` waits for it.
 */
export type Direct = <T>(
  key: string,
  signal: AbortSignal | undefined,
  operation: (store: Store) => Promise<T | Failure>,
) => Promise<T>;

type Methods = Pick<LockBackend, "lookup" | "release">;

const known = new WeakMap<object, { direct: Direct; methods: Methods }>();

/** Registers how to reach the store of a backend. */
export function allowDirect<Backend extends Methods>(backend: Backend, direct: Direct): Backend {
  const { lookup, release } = backend;
  known.set(backend, { direct, methods: { lookup, release } });
  return backend;
}

/**
 * How to reach the store of a backend. `undefined` for a wrapper such as that of `withTelemetry()`, for a copy, and for a
 * backend whose methods were replaced, because these have to see each operation.
 */
export function directAccess(backend: Methods): Direct | undefined {
  const entry = known.get(backend);
  if (entry === undefined) return undefined;
  const { lookup, release } = entry.methods;
  return backend.lookup === lookup && backend.release === release ? entry.direct : undefined;
}
