/** The default backend: the one of `lock(fn, config)` without a backend. */

import { mkdirSync } from "node:fs";
import { homedir } from "node:os";
import { join, posix, win32 } from "node:path";
import { createFirestoreBackend } from "../firestore/backend.js";
import { connectionOfUrl } from "../firestore/connection.js";
import { checkBackend } from "../values/arguments.js";
import type { FencingCapabilities, LockBackendLike, SyncGuardBackend } from "../values/types.js";
import { LockError, type LockErrorCode } from "../native/errors.js";
import { isRefusedByDeno } from "../native/loader.js";
import { tellDefault } from "../options/debug.js";
import { invalid } from "../options/validation.js";
import { createPostgresBackendOfUrl } from "../postgres/backend.js";
import { createRedisBackend } from "../redis/backend.js";
import { createSqliteBackend, sqlitePathOfUrl } from "../sqlite/backend.js";

type Backend = LockBackendLike<FencingCapabilities>;

let chosen: Backend | undefined;
/** The last value of `SYNCGUARD_URL`, and the backend made for it. */
let configured: { url: string | undefined; backend: Backend } | undefined;
let hasToldWhere = false;

/** The value of `SYNCGUARD_URL` that asks for the file of the user. */
export const LOCAL = "local";

/**
 * Makes `backend` the one that `lock(fn, config)` uses in this process; `undefined` undoes that.
 *
 * @throws LockError `InvalidArgument` if it is no backend with fencing tokens
 * @example
 * ```ts
 * import { lock, setDefaultBackend } from "syncguard";
 * import { createRedisBackend } from "syncguard/redis";
 *
 * setDefaultBackend(createRedisBackend("redis://localhost:6379"));
 * await lock(() => console.log("writing"), { key: "report:nightly" });
 * ```
 */
export function setDefaultBackend(backend: LockBackendLike<FencingCapabilities> | undefined): void {
  if (backend !== undefined) {
    checkBackend(backend);
    if ((backend.capabilities as Partial<FencingCapabilities>)?.supportsFencing !== true) {
      throw invalid("the default backend must support fencing");
    }
  }
  chosen = backend;
}

/** The default backend, created at its first use. */
export function getDefaultBackend(): Backend {
  if (chosen !== undefined) return chosen;
  const url = process.env.SYNCGUARD_URL;
  if (configured === undefined || configured.url !== url) {
    tellDefault(
      url === undefined
        ? "an SQLite file of this user, because SYNCGUARD_URL is not set"
        : "by SYNCGUARD_URL",
    );
    configured = { url, backend: createFromUrl(url) };
  }
  return configured.backend;
}

/**
 * Says once where the locks are that nobody has chosen a place for. Other users and other machines are granted the same locks,
 * and nobody would notice.
 */
function tellWhere(path: string): void {
  const { NODE_ENV } = process.env;
  if (hasToldWhere || NODE_ENV === "development" || NODE_ENV === "test") return;
  hasToldWhere = true;
  process.emitWarning(
    `SYNCGUARD_URL is not set: locks are kept in ${path}, and exclude only processes of this user on this machine`,
    {
      code: "SYNCGUARD_LOCAL_LOCKS",
      detail: `Set it to the URL of a server, or to "${LOCAL}" if this is what you want.`,
    },
  );
}

/** The stores that a URL can name. */
export type StoreKind = "sqlite" | "redis" | "postgres" | "firestore";

const SCHEMES: readonly (readonly [StoreKind, RegExp])[] = [
  ["sqlite", /^sqlite$/],
  ["redis", /^((redis|valkey)s?([+-](sentinel|cluster))?|((redis|valkey)\+)?unix)$/],
  ["postgres", /^postgres(ql)?$/],
  ["firestore", /^firestore$/],
];

/**
 * Which store a URL names.
 *
 * @param name - the name for the URL in errors, which do not show the URL itself
 * @throws LockError `InvalidArgument`
 */
export function storeOfUrl(url: string, name: string): StoreKind {
  // Somebody meant to name a store. Falling back to a local file would not exclude other machines.
  if (url.trim() === "") throw invalid(`${name} is set but empty: give it a URL, or unset it`);
  // Of a file's path, it would be a part: another process that trims it has another file.
  if (/[\r\n]$/.test(url)) {
    throw invalid(`${name} ends with a line break, as what is read from a file does: trim it`);
  }
  // Only the scheme may appear in errors: the rest may contain a password.
  const scheme = /^([a-z][a-z0-9+.-]*):/i.exec(url)?.[1]?.toLowerCase() ?? "";
  const store = SCHEMES.find(([, pattern]) => pattern.test(scheme))?.[0];
  if (store === undefined) {
    throw invalid(
      `${name} must be ${LOCAL}, or start with sqlite:, redis:, rediss:, redis+sentinel:, redis+cluster: (or valkey in the place of redis), unix:, postgres:, postgresql: or firestore:`,
    );
  }
  return store;
}

function createFromUrl(url: string | undefined): Backend {
  if (url === undefined || url === LOCAL) {
    const path = embeddedPath();
    if (url === undefined) tellWhere(path);
    return createSqliteBackend(path);
  }
  return openUrl(url, "SYNCGUARD_URL");
}

/**
 * A backend on the store that a URL names.
 *
 * @param name - the name for the URL in errors, which do not show the URL itself
 * @throws LockError `InvalidArgument`
 */
export function openUrl(url: string, name: string): SyncGuardBackend {
  const kind = storeOfUrl(url, name);
  if (kind === "sqlite") return createSqliteBackend(sqlitePathOfUrl(url, name));
  try {
    if (kind === "redis") return createRedisBackend(url);
    if (kind === "postgres") return createPostgresBackendOfUrl(url);
    return createFirestoreBackend(connectionOfUrl(url));
  } catch (error) {
    throw invalid(`${name}: ${(error as Error).message}`);
  }
}

/** The file of the default backend; its folder is made if it is missing. */
export function embeddedPath(): string {
  let folder: string;
  try {
    folder = stateFolder(process.env, process.platform, homedir());
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  } catch (error) {
    if (error instanceof LockError) throw error;
    if (isRefusedByDeno(error)) {
      throw new LockError(
        "AuthFailed",
        "Deno refuses what the default backend needs: run it with --allow-sys=homedir and --allow-write, or set SYNCGUARD_URL",
        { cause: error },
      );
    }
    throw new LockError(
      codeOf(error),
      "The folder of the default backend could not be created: set SYNCGUARD_URL to a sqlite: URL, or call setDefaultBackend()",
      { cause: error },
    );
  }
  return join(folder, "locks.db");
}

/**
 * The folder in which a platform keeps the state of a user's programs.
 *
 * @throws LockError `InvalidArgument` if it is not known: a relative one would be another in each working directory, so
 *   that processes do not exclude each other
 */
export function stateFolder(
  env: Readonly<Record<string, string | undefined>>,
  platform: string,
  home: string,
): string {
  const { XDG_STATE_HOME, LOCALAPPDATA } = env;
  const isAbsolute = (path: string): boolean =>
    (platform === "win32" ? win32 : posix).isAbsolute(path);
  const below = (folder: string, variables: string, ...names: string[]): string => {
    if (isAbsolute(folder)) return join(folder, ...names, "syncguard");
    throw invalid(
      `the default backend has no folder for its file, because ${variables} is no absolute path: set it to one, or SYNCGUARD_URL to the URL of a store`,
    );
  };
  if (platform === "win32") {
    if (LOCALAPPDATA) return below(LOCALAPPDATA, "LOCALAPPDATA");
    return below(home, "USERPROFILE", "AppData", "Local");
  }
  if (platform === "darwin") return below(home, "HOME", "Library", "Application Support");
  // The XDG specification says to ignore relative paths.
  if (XDG_STATE_HOME && isAbsolute(XDG_STATE_HOME)) return below(XDG_STATE_HOME, "XDG_STATE_HOME");
  return below(home, "HOME", ".local", "state");
}

function codeOf(error: unknown): LockErrorCode {
  switch ((error as NodeJS.ErrnoException).code) {
    case "EACCES":
    case "EPERM":
    case "EROFS":
      return "AuthFailed";
    case "ENOSPC":
    case "EDQUOT":
      return "ServiceUnavailable";
    case "EEXIST":
    case "ENOTDIR":
      return "InvalidArgument";
    default:
      return "Internal";
  }
}
