/** Opens stores on PostgreSQL, and the requests that they make to a client of the user's. */

import { addon, callAddon } from "../native/addon.js";
import type {
  PostgresConnection,
  PostgresLockOptions,
  PostgresSettings,
} from "../native/exports.js";
import { ownCompletions, withClient } from "../native/operations.js";
import { openStore, type Store } from "../native/store.js";

/** A statement for a client to run. The answer is its only row, with the columns in that order, or null. */
export type PostgresStatementCall =
  | { sql: string; params: (string | null)[]; columns: string[] }
  /** Several statements without parameters, as one transaction. */
  | { batch: string };

/** Where the server is, and the function that gives the password, if there is one. */
export type PostgresTarget = {
  options: PostgresSettings;
  password?: (() => unknown) | undefined;
};

/** `password` is called for each connection that is opened. */
export function createPostgresConnection({
  options,
  password,
}: PostgresTarget): PostgresConnection {
  const connect = (passwordClient?: number): PostgresConnection => {
    const all = { ...options };
    if (passwordClient !== undefined) all.passwordClient = passwordClient;
    return callAddon(() => new (addon().PostgresConnection)(ownCompletions(), all));
  };
  return password === undefined ? connect() : withClient(async () => await password(), connect);
}

export function openPostgres(connection: PostgresConnection, locks: PostgresLockOptions): Store {
  return openStore(
    (completions) => addon().NativeBackend.postgres(completions, connection, locks),
    connection,
  );
}

/** Every statement goes through `run`, which uses a client of the user's. */
export function openPostgresOverClient(
  run: (call: PostgresStatementCall) => Promise<unknown>,
  locks: PostgresLockOptions,
): Store {
  return withClient(run, (client) =>
    openStore((completions) =>
      addon().NativeBackend.postgresOverClient(completions, client, locks),
    ),
  );
}
