/** The public types of the PostgreSQL backend. */

import type { BackendCapabilities, CommonBackendOptions } from "../values/types.js";

/** PostgreSQL gives fencing tokens, and its clock decides. */
export interface PostgresCapabilities extends BackendCapabilities {
  /** The store, for those who handle backends of several. */
  backend: "postgres";
  /** Each acquisition comes with a fencing token. */
  supportsFencing: true;
  /** The clock of the PostgreSQL server decides when a lock ends. */
  timeAuthority: "server";
}

/** Your client with postgres.js' `unsafe(text, params)`, which gives the rows. */
export interface PostgresJsClient {
  /** Runs a statement with parameters and gives its rows. */
  unsafe: (...args: never[]) => unknown;
}

/** Your client with pg's `query(text, params)`, which gives `{ rows }`. */
export interface PgClient {
  /** Runs a statement with parameters and gives `{ rows }`. */
  query: (...args: never[]) => unknown;
}

/** Your client: postgres.js, a pg `Pool` or `Client`, or any object with their method for queries. */
export type PostgresClient = PostgresJsClient | PgClient;

/** Which servers to trust, and how the client identifies itself. Certificates and keys are PEM. */
export interface PostgresSslOptions {
  /** The certificates to trust. Default: those that Node trusts. */
  ca?: string | Uint8Array | readonly (string | Uint8Array)[] | undefined;
  /** The client certificate to present, with its chain. */
  cert?: string | Uint8Array | readonly (string | Uint8Array)[] | undefined;
  /** Its private key, without a passphrase. */
  key?: string | Uint8Array | undefined;
  /** The name that the server's certificate must have. Default: the host. */
  servername?: string | undefined;
  /** Whether a certificate that cannot be trusted ends the connection. Default true. */
  rejectUnauthorized?: boolean | undefined;
}

/**
 * Where a PostgreSQL server is. Options given besides `url` override it; missing ones are taken from the variables PGHOST,
 * PGUSER and so on.
 */
export interface PostgresConnectionOptions {
  /** A URL as for {@link createPostgresBackend}. */
  url?: string | undefined;
  /** Names, addresses, or folders of unix sockets; of several, the one that accepts writes, on the latest timeline. Default `"localhost"`. */
  host?: string | readonly string[] | undefined;
  /** The port: one for all hosts, or one for each. Default 5432. */
  port?: number | readonly number[] | undefined;
  /** A unix socket, such as `/run/postgresql/.s.PGSQL.5432`, instead of host and port. */
  path?: string | undefined;
  /** The database. Default: the name of the role. */
  database?: string | undefined;
  /** The role. Default: the name of the operating system's user. */
  user?: string | undefined;
  /** The password, or a function that gives one for each connection, for example a token that expires. */
  password?: string | (() => string | PromiseLike<string>) | undefined;
  /** The mode, as in libpq. `true` means `"verify-full"`, `false` means `"disable"`. Default `"prefer"`. */
  ssl?:
    | boolean
    | "disable"
    | "allow"
    | "prefer"
    | "require"
    | "verify-ca"
    | "verify-full"
    | PostgresSslOptions
    | undefined;
  /** The name of the connections in `pg_stat_activity`. Default `"syncguard"`. */
  application_name?: string | undefined;
  /** Command-line options of the sessions, such as `-c search_path=locks`. */
  options?: string | undefined;
  /** Session settings by name, such as `statement_timeout`, `lock_timeout` and `search_path`. */
  connection?: Readonly<Record<string, string | number | boolean | undefined>> | undefined;
  /** Which servers to accept. Default: with several hosts, only one that accepts writes. */
  target_session_attrs?: "any" | "read-write" | "primary" | undefined;
}

/** Options of the PostgreSQL backend. */
export interface PostgresBackendOptions extends CommonBackendOptions {
  /** The table of locks. Default `"syncguard_locks"`. */
  tableName?: string | undefined;
  /** The table of fence counters. Default `"syncguard_fence_counters"`. */
  fenceTableName?: string | undefined;
  /** Milliseconds after which an operation fails. Default: `query_timeout` of a pg client, else 5000. */
  operationTimeoutMs?: number | undefined;
  /** Milliseconds that getting a connection may take. Default: the client's own, else 5000. */
  connectTimeoutMs?: number | undefined;
  /** The most native connections at once; they are opened when they are needed. Default: the client's `max`, else 10. */
  poolSize?: number | undefined;
  /**
   * Whether a release is answered only when it is on the server's disk. If false, releases are faster, but a crash of the
   * server may bring the lock back until its TTL ends it. Acquisitions always wait for the disk. Default false.
   */
  durableReleases?: boolean | undefined;
  /**
   * Whether statements are prepared once per native connection. The backend notices by itself when a pooler makes that
   * impossible. Default: the client's, else true.
   */
  prepare?: boolean | undefined;
  /**
   * How operations get to the server.
   *
   * - `"native"`: over connections of this package. Of a client, only the settings are used.
   * - `"client"`: through the client's own `unsafe` or `query`.
   *
   * Default: native if all settings that matter can be carried over, else the client.
   */
  transport?: "native" | "client" | undefined;
}

/** Options of {@link setupSchema}: the backend's options for tables and connections. */
export type PostgresSchemaOptions = Pick<
  PostgresBackendOptions,
  "tableName" | "fenceTableName" | "connectTimeoutMs" | "transport"
>;

/** The options, with the defaults filled in. */
export interface PostgresConfig {
  /** The table of locks. */
  tableName: string;
  /** The table of fence counters. */
  fenceTableName: string;
  /** Whether `isLocked()` deletes what expired more than two seconds ago. */
  cleanupInIsLocked: boolean;
}
