/** What users see of the PostgreSQL backend. */

import type { BackendCapabilities, CommonBackendOptions } from "../lock/types.js";

/** PostgreSQL gives fencing tokens, and its clock decides. */
export interface PostgresCapabilities extends BackendCapabilities {
  backend: "postgres";
  supportsFencing: true;
  timeAuthority: "server";
}

/** A client of yours with postgres.js' `unsafe(text, params)`, which gives the rows. */
export interface PostgresJsClient {
  unsafe: (...args: never[]) => unknown;
}

/** A client of yours with pg's `query(text, params)`, which gives `{ rows }`. */
export interface PgClient {
  query: (...args: never[]) => unknown;
}

/** A client of yours: postgres.js, a pg `Pool` or `Client`, or anything with their call for queries. */
export type PostgresClient = PostgresJsClient | PgClient;

/** How to trust a server, and how to be trusted by it. Certificates and keys are PEM. */
export interface PostgresSslOptions {
  /** The certificates to trust. Default: those that Node trusts. */
  ca?: string | Uint8Array | readonly (string | Uint8Array)[] | undefined;
  /** The certificate to show, with its chain. */
  cert?: string | Uint8Array | readonly (string | Uint8Array)[] | undefined;
  /** Its private key, without a passphrase. */
  key?: string | Uint8Array | undefined;
  /** The name that the server's certificate must have. Default: the host. */
  servername?: string | undefined;
  /** Whether a certificate that cannot be trusted ends the connection. Default true. */
  rejectUnauthorized?: boolean | undefined;
}

/**
 * Where a PostgreSQL server is, in the words of postgres.js and of pg. What stands beside `url` overrides it; what is not
 * said is taken from the variables PGHOST, PGUSER and so on.
 */
export interface PostgresConnectionOptions {
  /** As {@link createPostgresBackend} takes it. */
  url?: string | undefined;
  /** The same, in pg's word. */
  connectionString?: string | undefined;
  /** Names, addresses, or folders of unix sockets; of several, the first that accepts writes. Default `"localhost"`. */
  host?: string | readonly string[] | undefined;
  /** One for all hosts, or one for each. Default 5432. */
  port?: number | readonly number[] | undefined;
  /** A unix socket, such as `/run/postgresql/.s.PGSQL.5432`, instead of host and port. */
  path?: string | undefined;
  /** Default: the name of the role. */
  database?: string | undefined;
  /** The role. Default: the name of the operating system's user. */
  user?: string | undefined;
  /** The same. */
  username?: string | undefined;
  /** The password, or what gives one for each connection, such as a token that expires. */
  password?: string | (() => string | PromiseLike<string>) | undefined;
  /** The same. */
  pass?: string | (() => string | PromiseLike<string>) | undefined;
  /** `true` stands for `"verify-full"`, `false` for `"disable"`; the words are libpq's. Default `"prefer"`. */
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
  /** The most connections at once. Default 10. */
  max?: number | undefined;
  /** Seconds that getting a connection may take. Default 5. */
  connect_timeout?: number | undefined;
  /** The same in milliseconds, in pg's word. */
  connectionTimeoutMillis?: number | undefined;
  /** What `pg_stat_activity` calls the connections. Default `"syncguard"`. */
  application_name?: string | undefined;
  /** Command-line options of the sessions, such as `-c search_path=locks`. */
  options?: string | undefined;
  /** Settings of the sessions by name. */
  connection?: Readonly<Record<string, string | number | boolean | undefined>> | undefined;
  /** Milliseconds; the server ends statements that take longer. Default: the operation's limit. */
  statement_timeout?: number | undefined;
  /** Milliseconds that a statement may wait for another session's lock. */
  lock_timeout?: number | undefined;
  /** What a server must be. Default: with several hosts, it must accept writes. */
  target_session_attrs?: "any" | "read-write" | "primary" | undefined;
  /** Whether statements are prepared, see {@link PostgresBackendOptions.prepare}. */
  prepare?: boolean | undefined;
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
   * Whether a release is answered only when it is on the server's disk. Without, it is faster, and a crash of the
   * server may bring the lock back until its TTL ends it. Acquisitions always wait for the disk. Default false.
   */
  durableReleases?: boolean | undefined;
  /**
   * Whether statements are prepared once per native connection. Where a pooler makes that impossible, this is found out.
   * Default: the client's, else true.
   */
  prepare?: boolean | undefined;
  /**
   * Who carries operations to the server.
   *
   * - `"native"`: connections of this package. From a client only its settings are read.
   * - `"client"`: the client's own `unsafe` or `query`.
   *
   * Default: native wherever all settings that matter can be carried over, else the client.
   */
  transport?: "native" | "client" | undefined;
}

/** Options of {@link setupSchema}: those of the backend that have to do with tables and connections. */
export type PostgresSchemaOptions = Pick<
  PostgresBackendOptions,
  "tableName" | "fenceTableName" | "connectTimeoutMs" | "transport"
>;

/** The options with nothing left open. */
export interface PostgresConfig {
  tableName: string;
  fenceTableName: string;
  cleanupInIsLocked: boolean;
}
