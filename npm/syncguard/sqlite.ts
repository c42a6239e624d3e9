/** `syncguard/sqlite` */

import { createAutoLock } from "./lock/lock.js";
import type { BoundLock } from "./lock/types.js";
import {
  createSqliteBackend,
  type SqliteBackendOptions,
  type SqliteCapabilities,
} from "./sqlite/backend.js";

export { createSqliteBackend, type SqliteBackendOptions, type SqliteCapabilities };

/** `lock()` bound to a SQLite backend: see {@link createSqliteBackend}. */
export function createLock(
  path: string,
  options?: SqliteBackendOptions,
): BoundLock<SqliteCapabilities>;
/** The same, with the path among the options. */
export function createLock(options?: SqliteBackendOptions): BoundLock<SqliteCapabilities>;
export function createLock(
  pathOrOptions?: string | SqliteBackendOptions,
  options?: SqliteBackendOptions,
): BoundLock<SqliteCapabilities> {
  return createAutoLock(createSqliteBackend(pathOrOptions as string, options));
}
