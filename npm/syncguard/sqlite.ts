/** `syncguard/sqlite` */

import "./native/required.js";
import { createOwnLock } from "./backend/lock.js";
import type { ClosableLock } from "./values/types.js";
import {
  createSqliteBackend,
  type SqliteBackendOptions,
  type SqliteCapabilities,
} from "./sqlite/backend.js";

export { createSqliteBackend, type SqliteBackendOptions, type SqliteCapabilities };

/**
 * `lock()` bound to a SQLite backend of its own, which `lock.close()` closes.
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
): ClosableLock<SqliteCapabilities>;
/**
 * `lock()` bound to a SQLite backend of its own, with the path among the options.
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
export function createLock(options?: SqliteBackendOptions): ClosableLock<SqliteCapabilities>;
export function createLock(
  pathOrOptions?: string | SqliteBackendOptions,
  options?: SqliteBackendOptions,
): ClosableLock<SqliteCapabilities> {
  return createOwnLock(createSqliteBackend(pathOrOptions as string, options));
}
