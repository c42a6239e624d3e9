/** `syncguard/sqlite` */

import "./native/required.js";
import { createAutoLock } from "./lock/lock.js";
import type { BoundLock } from "./lock/types.js";
import {
  createSqliteBackend,
  type SqliteBackendOptions,
  type SqliteCapabilities,
} from "./sqlite/backend.js";

export { createSqliteBackend, type SqliteBackendOptions, type SqliteCapabilities };

/**
 * `lock()` bound to a SQLite backend.
 *
 * @param path - as for {@link createSqliteBackend}
 * @param options - as for {@link createSqliteBackend}
 * @throws LockError `InvalidArgument` for invalid options
 * @example
 * ```ts
 * import { createLock } from "syncguard/sqlite";
 *
 * const lock = createLock("./locks.db");
 * await lock(({ fence }) => console.log("working under fence", fence), { key: "report:nightly" });
 * ```
 */
export function createLock(
  path: string,
  options?: SqliteBackendOptions,
): BoundLock<SqliteCapabilities>;
/**
 * `lock()` bound to a SQLite backend, with the path among the options.
 *
 * @param options - as for {@link createSqliteBackend}
 *
 * @throws LockError `InvalidArgument` for invalid options
 * @example
 * ```ts
 * import { createLock } from "syncguard/sqlite";
 *
 * const lock = createLock({ path: "./locks.db", operationTimeoutMs: 2_000 });
 * await lock(() => console.log("writing"), { key: "report:nightly" });
 * ```
 */
export function createLock(options?: SqliteBackendOptions): BoundLock<SqliteCapabilities>;
export function createLock(
  pathOrOptions?: string | SqliteBackendOptions,
  options?: SqliteBackendOptions,
): BoundLock<SqliteCapabilities> {
  return createAutoLock(createSqliteBackend(pathOrOptions as string, options));
}
