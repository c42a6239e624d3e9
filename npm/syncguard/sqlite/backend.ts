import { createBackend } from "../backend/native-backend.js";
import type {
  BackendCapabilities,
  CommonBackendOptions,
  SyncGuardBackend,
} from "../values/types.js";
import { addon } from "../native/addon.js";
import type { SqliteOptions } from "../native/exports.js";
import { openStore } from "../native/store.js";
import { checkKnownOptions } from "../options/known.js";
import { checkObject, copyGiven, invalid, withoutNulls } from "../options/validation.js";

/** `"server"` means the machine's clock, which all users of the file share. */
export interface SqliteCapabilities extends BackendCapabilities {
  /** The store, for those who handle backends of several. */
  backend: "sqlite";
  /** Each acquisition comes with a fencing token. */
  supportsFencing: true;
  /** The clock of the machine, which all processes that use the file share. */
  timeAuthority: "server";
}

/** Options of the SQLite backend. */
export interface SqliteBackendOptions extends CommonBackendOptions {
  /** The database file, in an existing folder. Default `":memory:"`: a database in memory that ends with the process. */
  path?: string | undefined;
  /** Milliseconds after which an operation fails with `NetworkTimeout`, e.g. while others hold the database. Default 5000. */
  operationTimeoutMs?: number | undefined;
  /**
   * Whether the file may be on a network file system. Then no other machine may use the file, because the locks do not
   * work across machines. Default false: such a path is an `InvalidArgument`.
   */
  allowNetworkFileSystem?: boolean | undefined;
}

const OPTIONS = Object.keys({
  path: true,
  operationTimeoutMs: true,
  allowNetworkFileSystem: true,
  cleanupInIsLocked: true,
  onReleaseError: true,
  onLost: true,
  disposeTimeoutMs: true,
} satisfies Record<keyof SqliteBackendOptions, true>);

/**
 * A backend that keeps locks in a SQLite database: no server needed.
 *
 * All processes of one machine that use the same file exclude each other; network file systems are refused. Times are
 * those of the machine's clock: when it is set forward, locks end early; when it is set back, they last longer.
 *
 * @param path - a file in a folder that exists, `":memory:"`, or a URL such as `sqlite:///var/lib/app/locks.db`
 * @throws LockError `InvalidArgument` for invalid options. The file is opened by the first operation.
 * @example
 * ```ts
 * import { lock } from "syncguard";
 * import { createSqliteBackend } from "syncguard/sqlite";
 *
 * const backend = createSqliteBackend("./locks.db");
 * await lock(backend, () => console.log("writing"), { key: "report:nightly" });
 * ```
 */
export function createSqliteBackend(
  path: string,
  options?: SqliteBackendOptions,
): SyncGuardBackend<SqliteCapabilities>;
/**
 * A backend that keeps locks in a SQLite database, with the path among the options; without one, in memory.
 *
 * @throws LockError `InvalidArgument` for invalid options. The file is opened by the first operation.
 * @example
 * ```ts
 * import { createSqliteBackend } from "syncguard/sqlite";
 *
 * const inMemory = createSqliteBackend(); // for this process alone
 * const shared = createSqliteBackend({ path: "./locks.db", operationTimeoutMs: 2_000 });
 * ```
 */
export function createSqliteBackend(
  options?: SqliteBackendOptions,
): SyncGuardBackend<SqliteCapabilities>;
export function createSqliteBackend(
  pathOrOptions: string | SqliteBackendOptions = {},
  moreOptions: SqliteBackendOptions = {},
): SyncGuardBackend<SqliteCapabilities> {
  const { path, ...options } = mergeOptions(pathOrOptions, moreOptions);
  const settings: SqliteOptions = {};
  if (path !== undefined && path !== ":memory:") settings.path = path;
  const names = ["cleanupInIsLocked", "operationTimeoutMs", "allowNetworkFileSystem"] as const;
  copyGiven(settings, options, ...names);
  const store = openStore((completions) => addon().NativeBackend.sqlite(completions, settings));
  return createBackend(store, options);
}

function mergeOptions(
  pathOrOptions: string | SqliteBackendOptions,
  moreOptions: SqliteBackendOptions,
): SqliteBackendOptions {
  if (typeof pathOrOptions !== "string") checkObject(pathOrOptions, "options");
  const more = withoutNulls(moreOptions);
  const options: SqliteBackendOptions =
    typeof pathOrOptions === "string"
      ? { ...more, path: pathOrOptions }
      : { ...withoutNulls(pathOrOptions), ...more };
  checkKnownOptions(options, OPTIONS, "SQLite backend option");
  const { path } = options;
  if (path === undefined) return options;
  if (typeof path !== "string" || path === "") throw invalid("path must be a non-empty string");
  return path.startsWith("sqlite:") ? { ...options, path: sqlitePathOfUrl(path, "path") } : options;
}

/**
 * The file that a `sqlite:` URL names: `sqlite:///absolute/path`, `sqlite:relative/path` or `sqlite::memory:`.
 *
 * @param name - the name for the URL in errors, which do not show the URL itself
 * @throws LockError `InvalidArgument`
 */
export function sqlitePathOfUrl(url: string, name: string): string {
  const rest = url.slice("sqlite:".length);
  if (rest === ":memory:") return rest;
  if (/[?#]/.test(rest)) throw invalid(`${name}: a sqlite URL takes no parameters`);
  let path = rest;
  if (rest.startsWith("//")) {
    path = rest.slice(2);
    if (!path.startsWith("/")) {
      throw invalid(
        `${name}: a sqlite URL names no host; write sqlite:///absolute/path or sqlite:relative/path`,
      );
    }
    // sqlite:///C:/locks.db
    if (process.platform === "win32") path = path.replace(/^\/(?=[A-Za-z]:)/, "");
  }
  try {
    path = decodeURIComponent(path);
  } catch {
    throw invalid(`${name}: the percent-encoding of the sqlite URL is malformed`);
  }
  if (path.includes("\0")) throw invalid(`${name}: the path must not contain a NUL character`);
  if (path === "" || path === "/") throw invalid(`${name}: a sqlite URL needs a path`);
  return path;
}
