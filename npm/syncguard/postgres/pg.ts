/** Settings of pg's `Pool` and `Client`. */

import { existsSync } from "node:fs";
import { isIP, Socket } from "node:net";
import { join } from "node:path";
import type { PostgresSettings } from "../native/exports.js";
import { isGiven, isPositive, toNumber } from "../options/clients.js";
import { type Fields, type Reading, readParameters, readSslObject, type Target } from "./target.js";

/** Options with which the pool's connections differ from native ones. */
const POOL_OBSTACLES = ["Client", "stream", "connection", "verify", "onConnect"] as const;

/** Reads a pool's settings, as its clients would resolve them. */
export function readPgPool(pool: Fields): Reading {
  const options = pool.options as Fields;
  for (const name of POOL_OBSTACLES) {
    if (isGiven(options[name])) return { obstacle: name };
  }
  // A listener may set up each session, for example with a search_path.
  const { listenerCount } = pool as { listenerCount?: (event: string) => number };
  if (listenerCount?.call(pool, "connect")) {
    return { obstacle: "what listens to connect" };
  }
  let reading: Reading;
  try {
    // Makes a client without connecting it: only pg itself knows how it resolves options, URL and variables.
    reading = readPgClient(new (pool.Client as new (options: Fields) => Fields)(options));
  } catch {
    return { obstacle: "the settings, which pg refuses," };
  }
  if ("obstacle" in reading) return reading;
  if (isPositive(options.max)) reading.connection.poolSize = options.max;
  return reading;
}

/** Reads `client.connectionParameters`, where pg has resolved URL, options and variables. */
export function readPgClient(client: Fields): Reading {
  const connectionParameters = client.connectionParameters as Fields;
  const { host, port, user, database, replication, sslnegotiation } = connectionParameters;
  if (!hasOwnSocket(client, connectionParameters)) return { obstacle: "the stream" };
  if (isGiven(replication)) return { obstacle: "replication" };
  if (isGiven(sslnegotiation) && sslnegotiation !== "postgres") {
    return { obstacle: "sslnegotiation" };
  }
  if (typeof host !== "string" || typeof user !== "string") return { obstacle: "the host or role" };
  const connection: PostgresSettings = {
    environment: false,
    hosts: [{ host, port: toNumber(port) }],
    user,
  };
  if (typeof database === "string") connection.database = database;
  const target: Target = { connection };

  const obstacle =
    readPassword(connectionParameters, target) ??
    readSsl(connectionParameters.ssl, host, connection) ??
    readSession(connectionParameters, connection);
  if (obstacle !== undefined) return { obstacle };

  const { _connectionTimeoutMillis: connectMs } = client;
  const { connect_timeout, query_timeout } = connectionParameters;
  if (isPositive(connectMs)) connection.connectTimeoutMs = connectMs;
  else if (toNumber(connect_timeout) > 0)
    connection.connectTimeoutMs = toNumber(connect_timeout) * 1000;
  if (toNumber(query_timeout) > 0) target.operationTimeoutMs = toNumber(query_timeout);
  return target;
}

/** Whether pg itself makes the client's socket. Connectors bring a socket of their own, with TLS that pg does not know. */
function hasOwnSocket({ connection }: Fields, { ssl }: Fields): boolean {
  const { stream } = (connection ?? {}) as { stream?: unknown };
  if (typeof stream !== "object" || stream === null || Object.hasOwn(stream, "connect"))
    return false;
  if (ssl) return stream instanceof Socket;
  return Object.getPrototypeOf(stream) === Socket.prototype;
}

function readPassword(connectionParameters: Fields, target: Target): string | undefined {
  const { password } = connectionParameters;
  if (typeof password === "function") {
    target.password = () => (password as (parameters: unknown) => unknown)(connectionParameters);
  } else if (typeof password === "string") target.connection.password = password;
  else if (hasPasswordFile()) return "the password file";
  return undefined;
}

/** Whether there is a password file, in which pg looks if it was given no password. */
function hasPasswordFile(): boolean {
  // As pg finds it, which takes the working directory for a home that is empty or not there.
  const { PGPASSFILE, APPDATA, HOME } = process.env;
  const file =
    process.platform === "win32"
      ? join(APPDATA ?? "", "postgresql", "pgpass.conf")
      : join(HOME || "./", ".pgpass");
  return existsSync(PGPASSFILE || file);
}

function readSsl(ssl: unknown, host: string, connection: PostgresSettings): string | undefined {
  if (!ssl) {
    connection.tls = { mode: "disable" };
    return undefined;
  }
  if (ssl !== true && typeof ssl !== "object") return "ssl";
  const reading = readSslObject(ssl);
  if ("obstacle" in reading) return reading.obstacle;
  connection.tls = reading.tls;
  // If the host is a name, pg uses that and ignores `servername`.
  if (isIP(host) === 0) delete connection.tls.servername;
  return undefined;
}

function readSession(
  connectionParameters: Fields,
  connection: PostgresSettings,
): string | undefined {
  const { application_name, fallback_application_name, options } = connectionParameters;
  const name = application_name || fallback_application_name;
  if (typeof name === "string") connection.applicationName = name;
  if (typeof options === "string") connection.options = options;
  const settings: Record<string, unknown> = {};
  for (const name of ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"]) {
    if (connectionParameters[name]) settings[name] = connectionParameters[name];
  }
  const parameters = readParameters(settings);
  if (parameters === undefined) return "the session's timeouts";
  if (parameters.length > 0) connection.parameters = parameters;
  return undefined;
}
