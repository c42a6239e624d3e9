/** Recognises clients and reads their settings, so that native connections can be used in their place. */

import { isOwnMethod } from "../options/clients.js";
import { readPgClient, readPgPool } from "./pg.js";
import { readPostgresJs } from "./postgres-js.js";
import type { Reading } from "./target.js";
import type { PgClient, PostgresClient, PostgresJsClient } from "./types.js";

type Fields = Readonly<Record<string, unknown>>;

/** The settings of a client of postgres.js or pg. Any other object is an obstacle. */
export function readClient(client: PostgresClient): Reading {
  const fields = client as unknown as Fields;
  const { options } = fields;
  if (isPostgresJs(client)) {
    // The object for a transaction or a reserved connection has no options.
    if (typeof client === "function" && isFields(options) && Array.isArray(options.host)) {
      return readPostgresJs(options);
    }
  } else if (!isOwnMethod(client, "query", ["connect", "end"])) {
    return { obstacle: "query, which is not its class's," };
  } else if (isFields(fields.connectionParameters)) {
    return readPgClient(fields);
  } else if (
    isFields(options) &&
    typeof fields.Client === "function" &&
    typeof fields.totalCount === "number"
  ) {
    return readPgPool(fields);
  }
  return { obstacle: "the settings, which cannot be read," };
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
