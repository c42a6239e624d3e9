/** Several operations of a backend as one call of the addon, where nobody can tell the difference. */

import type { Failure } from "../native/operations.js";
import type { Store } from "../native/store.js";
import type { LockBackend } from "./types.js";

/**
 * Runs an operation on a backend's own store, with the backend's checks before it and what it is about in its errors.
 * `close()` waits for it.
 */
export type Direct = <T>(
  key: string,
  signal: AbortSignal | undefined,
  operation: (store: Store) => Promise<T | Failure>,
) => Promise<T>;

type Methods = Pick<LockBackend, "lookup" | "release">;

const known = new WeakMap<object, { direct: Direct; methods: Methods }>();

/** Notes how to reach the store of a backend. */
export function allowDirect<Backend extends Methods>(backend: Backend, direct: Direct): Backend {
  const { lookup, release } = backend;
  known.set(backend, { direct, methods: { lookup, release } });
  return backend;
}

/**
 * How to reach the store of a backend. Nothing for a wrapper, such as that of `withTelemetry()`, for a copy, and for a
 * backend whose methods somebody has replaced: whoever stands before the store is to see each operation.
 */
export function directAccess(backend: Methods): Direct | undefined {
  const entry = known.get(backend);
  if (entry === undefined) return undefined;
  const { lookup, release } = entry.methods;
  return backend.lookup === lookup && backend.release === release ? entry.direct : undefined;
}
