/** Opens stores on PostgreSQL, and the requests that they make to a client of the user's. */

import { addon } from "../native/addon.js";
import type {
  PostgresConnection,
  PostgresLockOptions,
  PostgresSettings,
} from "../native/exports.js";
import { connectAs, type Login } from "../native/login.js";
import { ownCompletions, withClient } from "../native/operations.js";
import { openStore, type Store } from "../native/store.js";

/** A statement for a client to run. The answer is its only row, with the columns in that order, or null. */
export type PostgresStatementCall =
  | { sql: string; params: (string | null)[]; columns: string[] }
  /** Several statements without parameters, as one transaction. */
  | { batch: string };

/** `login` is called for each connection that is opened, and what it gives takes the place of that in `settings`. */
export function createPostgresConnection(
  settings: PostgresSettings,
  login?: () => Promise<Login>,
): PostgresConnection {
  return connectAs(settings, login, (all) => {
    return new (addon().PostgresConnection)(ownCompletions(), all);
  });
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
