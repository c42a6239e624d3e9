/** What the addon has for PostgreSQL: the settings and calls that cross, and how a store is opened. */

import { type Completions, exported, type Handle } from "../native/addon.js";
import { withClient } from "../native/operations.js";
import { openStore, type Store } from "../native/store.js";
import type { Roots } from "../options/node-trust.js";

/** What locks in PostgreSQL are like, whoever talks to the server. */
export type PostgresLocks = {
  tableName?: string;
  fenceTableName?: string;
  cleanupInIsLocked?: boolean;
  operationTimeoutMs?: number;
  /** Whether a release waits for the server's disk. */
  durableReleases?: boolean;
  createsTables?: boolean;
};

/** Where a PostgreSQL server is. What stands beside a URL overrides it; what is not said is taken from PG* variables. */
export type PostgresSettings = {
  /** `false`: the variables do not count. */
  environment?: boolean;
  url?: string;
  /** Names, addresses, or folders of unix sockets. */
  hosts?: { host: string; port?: number }[];
  database?: string;
  user?: string;
  password?: string;
  /** Certificates and keys as PEM; `mode` as libpq's sslmode. */
  tls?: {
    mode?: string;
    ca?: string;
    /** Whom to trust without `ca`. */
    defaultRoots?: Roots;
    cert?: string;
    key?: string;
    servername?: string;
  };
  applicationName?: string;
  options?: string;
  parameters?: { name: string; value: string }[];
  targetSessionAttrs?: string;
  poolSize?: number;
  connectTimeoutMs?: number;
  prepare?: boolean;
};

/** A statement for a client to carry out: the answer is its only row, the columns in that order, or null. */
export type PostgresStatementCall =
  | { sql: string; params: (string | null)[]; columns: string[] }
  /** Several statements without parameters, as one transaction. */
  | { batch: string };

const { NativeBackend } = exported as {
  NativeBackend: {
    postgres(
      completions: Completions,
      connection: PostgresSettings & { passwordClient?: number },
      locks: PostgresLocks,
    ): Handle;
    postgresOverClient(completions: Completions, client: number, locks: PostgresLocks): Handle;
  };
};

/** `password` is asked for at each connection that is opened. */
export function openPostgres(
  connection: PostgresSettings,
  locks: PostgresLocks,
  password?: () => unknown,
): Store {
  if (password === undefined) {
    return openStore((completions) => NativeBackend.postgres(completions, connection, locks));
  }
  return withClient(
    async () => await password(),
    (passwordClient) =>
      openStore((completions) =>
        NativeBackend.postgres(completions, { ...connection, passwordClient }, locks),
      ),
  );
}

/** Every statement goes through `run`: a client of the user's. */
export function openPostgresOverClient(
  run: (call: PostgresStatementCall) => Promise<unknown>,
  locks: PostgresLocks,
): Store {
  return withClient(run, (client) =>
    openStore((completions) => NativeBackend.postgresOverClient(completions, client, locks)),
  );
}
