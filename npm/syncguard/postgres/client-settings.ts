/** Recognises clients and reads their settings, so that native connections can be used in their place. */

import { changeOf, isOwnMethod, sourceOfFunction } from "../options/clients.js";
import { readPgClient, readPgPool } from "./pg.js";
import { readPostgresJs } from "./postgres-js.js";
import type { Fields, Reading } from "./target.js";
import type { PgClient, PostgresClient, PostgresJsClient } from "./types.js";

/** The settings of a client of postgres.js or pg. Any other object is an obstacle. */
export function readClient(client: PostgresClient): Reading {
  const change = changeOf(client);
  if (change !== undefined) return { obstacle: change };
  const fields = client as unknown as Fields;
  const { options } = fields;
  if (isPostgresJs(client)) {
    // The object for a transaction or a reserved connection has no options.
    if (typeof client === "function" && isFields(options) && Array.isArray(options.host)) {
      return isOwnUnsafe(fields.unsafe) ? readPostgresJs(options) : notOwn("unsafe");
    }
    return UNREADABLE;
  }
  const replaced = replacedMethod(client);
  if (replaced !== undefined) return notOwn(replaced);
  if (isFields(fields.connectionParameters)) return readPgClient(fields);
  const { Client, totalCount } = fields;
  if (!isFields(options) || typeof Client !== "function" || typeof totalCount !== "number") {
    return UNREADABLE;
  }
  // Through its clients goes what goes through the pool.
  const ofClients = replacedMethod((Client as { prototype: object }).prototype);
  return ofClients === undefined ? readPgPool(fields) : notOwn(`${ofClients} of its clients`);
}

const UNREADABLE = { obstacle: "the settings, which cannot be read," };

function notOwn(name: string): Reading {
  return { obstacle: `${name}, which is not its class's,` };
}

/** The name of a method of pg that runs statements, or connects for them, and is not the driver's own. */
function replacedMethod(client: object): string | undefined {
  return ["query", "connect"].find((name) => !isOwnMethod(client, name, ["connect", "end"]));
}

/** Whether it is the function of postgres.js, minified or not: an option that it reads tells. */
function isOwnUnsafe(unsafe: unknown): boolean {
  return /^function\b[^]*\bsimple\b/.test(sourceOfFunction(unsafe));
}

/** Whether a value has a method for queries. */
export function isClient(value: unknown): value is PostgresClient {
  if ((typeof value !== "object" || value === null) && typeof value !== "function") return false;
  return isPostgresJs(value) || typeof (value as Partial<PgClient>).query === "function";
}

export function isPostgresJs(value: object): value is PostgresJsClient {
  return typeof (value as Partial<PostgresJsClient>).unsafe === "function";
}

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
