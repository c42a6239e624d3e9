/** Settings of a postgres.js instance. */

import type { PostgresSettings } from "../native/exports.js";
import { isGiven, isPositive, toNumber } from "../options/clients.js";
import { type Reading, readParameters, readSslObject, socketHost, type Target } from "./target.js";

/** The application name that postgres.js uses by default. */
const DEFAULT_NAME = "postgres.js";

/** Reads `sql.options`, where postgres.js has resolved URL, options and variables. */
export function readPostgresJs(options: Readonly<Record<string, unknown>>): Reading {
  const { socket, sslnegotiation, user, database, max, connect_timeout, prepare } = options;
  if (isGiven(socket) && socket !== false) return { obstacle: "the socket" };
  if (isGiven(sslnegotiation) && sslnegotiation !== "postgres") {
    return { obstacle: "sslnegotiation" };
  }
  const connection: PostgresSettings = { environment: false };
  const target: Target = { connection };

  const hosts = readHosts(options);
  if (hosts === undefined) return { obstacle: "the hosts" };
  connection.hosts = hosts;
  if (typeof user !== "string" || typeof database !== "string") return { obstacle: "the role" };
  connection.user = user;
  connection.database = database;

  const obstacle =
    readPassword(options.pass, target) ??
    readSsl(options.ssl, connection) ??
    readSession(options, connection);
  if (obstacle !== undefined) return { obstacle };

  if (isGiven(max)) connection.poolSize = toNumber(max);
  if (isPositive(connect_timeout)) connection.connectTimeoutMs = connect_timeout * 1000;
  if (prepare === false) connection.prepare = false;
  return target;
}

function readHosts({
  host,
  port,
  path,
}: Readonly<Record<string, unknown>>): PostgresSettings["hosts"] {
  if (typeof path === "string") {
    const socket = socketHost(path);
    return socket && [socket];
  }
  if (!Array.isArray(host) || !Array.isArray(port)) return undefined;
  const ports = port as unknown[];
  const isName = (name: unknown): name is string => typeof name === "string";
  if (!host.every(isName)) return undefined;
  return host.map((name, index) => ({
    host: name,
    port: toNumber(ports[index] ?? ports[0]),
  }));
}

function readPassword(password: unknown, target: Target): string | undefined {
  if (typeof password === "function") target.password = () => (password as () => unknown)();
  else if (typeof password !== "string") return "the password";
  else if (password !== "") target.connection.password = password;
  return undefined;
}

function readSsl(ssl: unknown, connection: PostgresSettings): string | undefined {
  if (!isGiven(ssl) || ssl === false) connection.tls = { mode: "disable" };
  // With either value, postgres.js always encrypts.
  else if (ssl === "require" || ssl === "allow") connection.tls = { mode: "require" };
  else if (ssl === "prefer") connection.tls = { mode: "prefer" };
  else if (ssl === true || ssl === "verify-full" || typeof ssl === "object") {
    const reading = readSslObject(typeof ssl === "object" ? (ssl as object) : true);
    if ("obstacle" in reading) return reading.obstacle;
    connection.tls = reading.tls;
  } else return "ssl";
  return undefined;
}

function readSession(
  options: Readonly<Record<string, unknown>>,
  connection: PostgresSettings,
): string | undefined {
  const { target_session_attrs: attrs } = options;
  if (attrs === "read-write" || attrs === "primary") connection.targetSessionAttrs = attrs;
  else if (attrs) return "target_session_attrs";

  const {
    application_name,
    options: commandLine,
    ...rest
  } = { ...(options.connection as Record<string, unknown>) };
  // The core always uses UTF-8, as postgres.js does.
  delete rest.client_encoding;
  if (typeof application_name === "string" && application_name !== DEFAULT_NAME) {
    connection.applicationName = application_name;
  }
  if (typeof commandLine === "string") connection.options = commandLine;
  const parameters = readParameters(rest);
  if (parameters === undefined || isGiven(rest.replication)) return "the connection parameters";
  if (parameters.length > 0) connection.parameters = parameters;
  return undefined;
}
