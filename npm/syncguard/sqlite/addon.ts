/** What the addon has for SQLite: the settings, and how a store is opened. */

import { type Completions, exported, type Handle } from "../native/addon.js";
import { openStore, type Store } from "../native/store.js";

export type SqliteSettings = {
  /** Absent for a database in memory. */
  path?: string;
  cleanupInIsLocked?: boolean;
  operationTimeoutMs?: number;
  allowNetworkFileSystem?: boolean;
};

const { NativeBackend } = exported as {
  NativeBackend: { sqlite(completions: Completions, settings: SqliteSettings): Handle };
};

export function openSqlite(settings: SqliteSettings): Store {
  return openStore((completions) => NativeBackend.sqlite(completions, settings));
}
