/** As whom a connection logs in, where that may change. */

import type { RedisSettings } from "../native/exports.js";
import type { Login } from "../native/login.js";
import { askFor } from "../options/login.js";
import { isNodeRedis, readSettings } from "./client-settings.js";
import { kindOfCluster } from "./cluster.js";
import type { LoginFunctions } from "./connection.js";
import type { RedisClient } from "./types.js";

/** How long a client may take to say which database it has selected. */
const PATIENCE_MS = 500;

/** The function that calls those of the options, both at the same time. */
export function loginBy({ username, password }: LoginFunctions): () => Promise<Login> {
  return async () => {
    const [user, secret] = await Promise.all([
      username && askFor(username),
      password && askFor(password),
    ]);
    return { user, password: secret };
  };
}

/** The function that gives the current login of a client in whose place a connection is. While it cannot be read, it is the last one. */
export function currentLogin(client: WeakRef<RedisClient>): () => Promise<Login> {
  let last: Login = {};
  return async () => {
    const target = client.deref();
    const reading = target === undefined ? undefined : readSettings(target);
    if (target === undefined || reading === undefined || "obstacle" in reading) return last;
    const isSecret = isNodeRedis(target) && kindOfCluster(target) === undefined;
    const selected = isSecret ? await selectedDatabase(target as unknown as NodeRedis) : undefined;
    last = toLogin(reading.settings, isSecret ? (selected ?? last.database) : undefined);
    return last;
  };
}

function toLogin({ username, password, db }: RedisSettings, selected?: string): Login {
  const login: Login = {};
  if (username !== undefined) login.user = username;
  if (password !== undefined) login.password = password;
  const database = selected ?? db;
  if (database !== undefined) login.database = String(database);
  return login;
}

type NodeRedis = { isReady?: unknown; sendCommand: (args: string[]) => Promise<unknown> };

/**
 * The database that a client of node-redis has selected. It keeps that to itself, so that the server is asked, over the
 * client's own connection. `undefined` if there is no answer: without a connection, without the right to ask, or while it
 * listens to channels.
 */
async function selectedDatabase(target: NodeRedis): Promise<string | undefined> {
  if (target.isReady !== true) return undefined;
  let timer: NodeJS.Timeout | undefined;
  try {
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, PATIENCE_MS);
    });
    const answer = await Promise.race([target.sendCommand(["CLIENT", "INFO"]), late]);
    return / db=(\d+)/.exec(String(answer))?.[1];
  } catch {
    return undefined;
  } finally {
    clearTimeout(timer);
  }
}
