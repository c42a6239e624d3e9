/** What the addon has for PostgreSQL: the settings and calls that cross, and how a store is opened. */

import { callAddon, type Completions, exported, type Handle } from "../native/addon.js";
import { ownCompletions, withClient } from "../native/operations.js";
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
  /** How long a statement may take. */
  operationTimeoutMs?: number;
  prepare?: boolean;
};

/** A statement for a client to carry out: the answer is its only row, the columns in that order, or null. */
export type PostgresStatementCall =
  | { sql: string; params: (string | null)[]; columns: string[] }
  /** Several statements without parameters, as one transaction. */
  | { batch: string };

/** Where the server is, and what gives the password if it is not said there. */
export type PostgresTarget = {
  options: PostgresSettings;
  password?: (() => unknown) | undefined;
};

/** Connections for several backends; they are made when they are needed. */
export interface PostgresConnection {
  readonly [Symbol.toStringTag]?: "PostgresConnection";
}

const addon = exported as {
  PostgresConnection: new (
    completions: Completions,
    settings: PostgresSettings & { passwordClient?: number },
  ) => PostgresConnection;
  NativeBackend: {
    postgres(
      completions: Completions,
      connection: PostgresConnection,
      locks: PostgresLocks,
    ): Handle;
    postgresOverClient(completions: Completions, client: number, locks: PostgresLocks): Handle;
  };
};

/** `password` is asked for at each connection that is opened. */
export function createPostgresConnection({
  options,
  password,
}: PostgresTarget): PostgresConnection {
  const connect = (passwordClient?: number): PostgresConnection => {
    const all = passwordClient === undefined ? options : { ...options, passwordClient };
    return callAddon(() => new addon.PostgresConnection(ownCompletions(), all));
  };
  return password === undefined ? connect() : withClient(async () => await password(), connect);
}

export function openPostgres(connection: PostgresConnection, locks: PostgresLocks): Store {
  return openStore(
    (completions) => addon.NativeBackend.postgres(completions, connection, locks),
    connection,
  );
}

/** Every statement goes through `run`: a client of the user's. */
export function openPostgresOverClient(
  run: (call: PostgresStatementCall) => Promise<unknown>,
  locks: PostgresLocks,
): Store {
  return withClient(run, (client) =>
    openStore((completions) => addon.NativeBackend.postgresOverClient(completions, client, locks)),
  );
}
