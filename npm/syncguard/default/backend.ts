/** The default backend: the one of `lock(fn, config)` without a backend. */

import { mkdirSync } from "node:fs";
import { homedir } from "node:os";
import { isAbsolute, join } from "node:path";
import { createFirestoreBackend } from "../firestore/backend.js";
import { connectionOfUrl } from "../firestore/connection.js";
import { checkBackend } from "../lock/arguments.js";
import type { FencingCapabilities, LockBackendLike } from "../lock/types.js";
import { LockError, type LockErrorCode } from "../native/errors.js";
import { invalid } from "../options/validation.js";
import { createPostgresBackendOfUrl } from "../postgres/backend.js";
import { createRedisBackend } from "../redis/backend.js";
import { createSqliteBackend, sqlitePathOfUrl } from "../sqlite/backend.js";

type Backend = LockBackendLike<FencingCapabilities>;

let chosen: Backend | undefined;
/** The last value of `SYNCGUARD_URL`, and the backend made for it. */
let configured: { url: string | undefined; backend: Backend } | undefined;
let warned = false;

/**
 * Makes `backend` the one that `lock(fn, config)` uses in this process; `undefined` undoes that.
 *
 * @throws LockError `InvalidArgument` if it is no backend with fencing tokens
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
    const backend = url === undefined ? createEmbedded() : createFromUrl(url);
    configured = { url, backend };
  }
  if (url === undefined) warnInProduction();
  return configured.backend;
}

/** On several machines without the variable, every machine would grant every lock, and nobody would notice. */
function warnInProduction(): void {
  if (warned || process.env.NODE_ENV !== "production") return;
  warned = true;
  process.emitWarning(
    "SYNCGUARD_URL is not set: locks exclude the processes of this user on this machine, and no other machine's.",
    {
      code: "SYNCGUARD_LOCAL_LOCKS",
      detail:
        "Set it to the URL of a server, or of a file (sqlite:///var/lib/app/locks.db) if one machine is all there is.",
    },
  );
}

const REDIS = /^(rediss?([+-](sentinel|cluster))?|(redis\+)?unix)$/;

const POSTGRES = /^postgres(ql)?$/;

function createFromUrl(url: string): Backend {
  if (url.trim() === "") {
    // Somebody meant to set the variable. Falling back to a local file would not exclude other machines.
    throw invalid("SYNCGUARD_URL is set but empty: give it a URL, or unset it");
  }
  // Only the scheme may appear in errors: the rest may contain a password.
  const scheme = /^([a-z][a-z0-9+.-]*):/i.exec(url)?.[1]?.toLowerCase();
  if (scheme === "sqlite") {
    return createSqliteBackend(sqlitePathOfUrl(url, "SYNCGUARD_URL"));
  }
  if (scheme !== undefined && REDIS.test(scheme)) return createOnServer(createRedisBackend, url);
  if (scheme !== undefined && POSTGRES.test(scheme)) {
    return createOnServer(createPostgresBackendOfUrl, url);
  }
  if (scheme === "firestore") {
    return createOnServer((at) => createFirestoreBackend(connectionOfUrl(at)), url);
  }
  throw invalid(
    "SYNCGUARD_URL must start with sqlite:, redis:, rediss:, redis+sentinel:, redis+cluster:, unix:, postgres:, postgresql: or firestore:",
  );
}

function createOnServer(create: (url: string) => Backend, url: string): Backend {
  try {
    return create(url);
  } catch (error) {
    throw invalid(`SYNCGUARD_URL: ${(error as Error).message}`);
  }
}

function createEmbedded(): Backend {
  let folder: string;
  try {
    folder = stateFolder(process.env, process.platform, homedir());
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw new LockError(
      codeOf(error),
      "The folder of the default backend could not be created: set SYNCGUARD_URL to a sqlite: URL, or call setDefaultBackend()",
      { cause: error },
    );
  }
  return createSqliteBackend(join(folder, "locks.db"));
}

/** The folder in which a platform keeps the state of a user's programs. */
export function stateFolder(
  env: Readonly<Record<string, string | undefined>>,
  platform: string,
  home: string,
): string {
  const { XDG_STATE_HOME, LOCALAPPDATA } = env;
  if (platform === "win32") {
    return join(LOCALAPPDATA || join(home, "AppData", "Local"), "syncguard");
  }
  if (platform === "darwin") return join(home, "Library", "Application Support", "syncguard");
  // The XDG specification says to ignore relative paths.
  const base =
    XDG_STATE_HOME && isAbsolute(XDG_STATE_HOME) ? XDG_STATE_HOME : join(home, ".local", "state");
  return join(base, "syncguard");
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
