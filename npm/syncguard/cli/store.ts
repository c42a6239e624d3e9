/** The store that a command works on. */

import { embeddedPath, LOCAL, type StoreKind, storeOfUrl } from "../default/backend.js";
import type { SyncGuardBackend } from "../values/types.js";
import { LockError } from "../native/errors.js";
import { readPositiveDuration } from "./duration.js";
import { usage } from "./exit.js";
import type { Output } from "./output.js";
import { STORES } from "./stores.js";
import { text, type Values } from "./values.js";

export type Backend = SyncGuardBackend;

/** Which store the arguments and the environment name. */
export type Target = {
  readonly kind: StoreKind;
  /** Not to be printed: it may contain a password. */
  readonly url: string;
  /** What the URL is called in messages. */
  readonly source: "--url" | "SYNCGUARD_URL" | "--local";
  /** What may be printed of the URL. */
  readonly description: string;
};

/**
 * Finds out which store is meant.
 *
 * @throws CliError, LockError if the URL or an option does not fit
 */
export function findStore(values: Values, out: Output): Target {
  const target = targetOf(values);
  const own = STORES[target.kind];
  for (const { name, options } of Object.values(STORES)) {
    const wrong = Object.keys(options).find((option) => values[option] !== undefined);
    if (wrong !== undefined && name !== own.name) {
      throw usage(
        `--${wrong} is for ${name}, but the locks are in ${own.name}`,
        "--verbose says which store is used",
      );
    }
  }
  out.detail(`${target.description} (${target.source})`);
  return target;
}

function targetOf(values: Values): Target {
  const urlOption = text(values, "url");
  const isLocal = values.local === true;
  if (isLocal && urlOption !== undefined) throw usage("--url and --local exclude each other");
  const url = isLocal ? LOCAL : (urlOption ?? process.env.SYNCGUARD_URL);
  // The file of this user would be as good as no lock at all to whoever meant another user's, or a server.
  if (url === undefined) {
    throw usage(
      "where are the locks? Give --url, set SYNCGUARD_URL, or say --local for an SQLite file of this user",
      "--local excludes neither other users (sudo, cron) nor other machines",
    );
  }
  const source = isLocal ? "--local" : urlOption === undefined ? "SYNCGUARD_URL" : "--url";
  if (url === LOCAL) {
    const path = embeddedPath();
    return {
      kind: "sqlite",
      url: `sqlite:${encodeURI(path).replace(/[?#]/g, encodeURIComponent)}`,
      source,
      description: `SQLite at ${path}`,
    };
  }
  const kind = storeOfUrl(url, source);
  return { kind, url, source, description: `${STORES[kind].name} at ${withoutSecrets(url)}` };
}

/** What is left of a URL without what may be a password, however badly it is written. */
export function withoutSecrets(url: string): string {
  const scheme = /^[a-z][a-z0-9+.-]*:(?:\/\/)?/i.exec(url)?.[0] ?? "";
  const rest = url.slice(Math.max(scheme.length, url.lastIndexOf("@") + 1));
  return scheme + rest.replace(/[?#].*$/s, "");
}

/** Opens the store; nothing connects before the first operation. */
export function openBackend(target: Target, values: Values, createsTables = false): Backend {
  const timeout = text(values, "timeout");
  const operationTimeoutMs =
    timeout === undefined ? undefined : readPositiveDuration(timeout, "timeout");
  const { kind, url, source } = target;
  try {
    return STORES[kind].open({ url, source, values, operationTimeoutMs, createsTables });
  } catch (error) {
    // What is wrong with the URL names it. An addon that does not load has nothing to do with it.
    if (!(error instanceof LockError) || error.code !== "InvalidArgument") throw error;
    if (error.message.startsWith(source)) throw error;
    throw new LockError(error.code, `${source}: ${error.message}`);
  }
}

/** Runs `use` with the store of a command, and closes it. */
export async function withBackend<T>(
  values: Values,
  out: Output,
  use: (backend: Backend, target: Target) => Promise<T>,
  createsTables = false,
): Promise<T> {
  const target = findStore(values, out);
  const backend = openBackend(target, values, createsTables);
  try {
    return await use(backend, target);
  } finally {
    await backend.close();
  }
}
