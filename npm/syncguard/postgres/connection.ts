/** Connection settings as users give them, in a URL or in options. */

import type { PostgresHost, PostgresTlsSettings } from "../native/exports.js";
import { backendsOwn, checkKnownOptions } from "../options/known.js";
import { readLoginOption } from "../options/login.js";
import { checkObject, invalid, notAClient } from "../options/validation.js";
import { readParameters, readSslObject, socketHost, type Target } from "./target.js";
import type { PostgresConnectionOptions } from "./types.js";

/** How each option is converted to settings. */
const READERS: Readonly<
  Record<keyof PostgresConnectionOptions, (value: unknown, target: Target, name: string) => void>
> = {
  url: readUrl,
  // Read together, after the others.
  host: () => undefined,
  port: () => undefined,
  path: () => undefined,
  database: text("database"),
  user: text("user"),
  password: readPassword,
  ssl: (value, { connection }) => (connection.tls = readSsl(value)),
  application_name: text("applicationName"),
  options: text("options"),
  connection: (value, { connection }) => {
    checkObject(value, "connection");
    const parameters = readParameters(value);
    if (parameters === undefined) {
      throw invalid("connection must hold strings, numbers and booleans");
    }
    connection.parameters = parameters;
  },
  target_session_attrs: text("targetSessionAttrs"),
};

/** Other names for them, of clients and of other backends. */
const FOREIGN: Readonly<Record<string, string>> = {
  ...backendsOwn(["connectTimeoutMs", "operationTimeoutMs", "poolSize", "prepare", "transport"], {
    connect_timeout: "connectTimeoutMs",
    connectionTimeoutMillis: "connectTimeoutMs",
    query_timeout: "operationTimeoutMs",
    max: "poolSize",
  }),
  connectionString: "url",
  hostname: "host",
  username: "user",
  pass: "password",
  db: "database",
  dbname: "database",
  tls: "ssl",
  statement_timeout: "connection.statement_timeout",
  lock_timeout: "connection.lock_timeout",
};

/**
 * Reads a URL or options.
 *
 * @throws LockError `InvalidArgument` that names the option
 */
export function readConnection(connection: unknown): Target {
  if (typeof connection === "string" && connection !== "")
    return { connection: { url: withScheme(connection) } };
  if (typeof connection !== "object" || connection === null || Array.isArray(connection)) {
    throw notAClient(
      "sql must be a postgres.js or pg client, a postgres:// URL or connection options",
      connection,
    );
  }
  const target: Target = { connection: {} };
  for (const [name, value] of Object.entries(connection) as [string, unknown][]) {
    // `null` counts as not given.
    if (value === undefined || value === null) continue;
    checkKnownOptions({ [name]: value }, Object.keys(READERS), "connection option", FOREIGN);
    READERS[name as keyof PostgresConnectionOptions](value, target, name);
  }
  const { host, port, path } = connection as PostgresConnectionOptions;
  const hosts = readHosts(host, port, path);
  if (hosts !== undefined) target.connection.hosts = hosts;
  return target;
}

function readUrl(value: unknown, { connection }: Target, name: string): void {
  if (typeof value !== "string") throw invalid(`${name} must be a string`);
  connection.url = withScheme(value);
}

/** The URL with its scheme in lower case, which has the same meaning. */
function withScheme(url: string): string {
  return url.replace(/^[a-z]+:/i, (scheme) => scheme.toLowerCase());
}

type TextSetting = "database" | "user" | "applicationName" | "options" | "targetSessionAttrs";

function text(setting: TextSetting) {
  return (value: unknown, { connection }: Target, name: string): void => {
    if (typeof value !== "string") throw invalid(`${name} must be a string`);
    connection[setting] = value;
  };
}

function readPassword(value: unknown, target: Target, name: string): void {
  const password = readLoginOption(value, name);
  if (typeof password === "string") target.connection.password = password;
  else target.password = password;
}

function readSsl(value: unknown): PostgresTlsSettings {
  if (value === false) return { mode: "disable" };
  if (typeof value === "string") return { mode: value };
  if (value !== true) checkObject(value, "ssl");
  const reading = readSslObject(value);
  if ("tls" in reading) return reading.tls;
  throw invalid(`${reading.obstacle} has a wrong type or is not an option`);
}

const LARGEST_POOL = 10_000;

/** Whether a value is a possible size of a pool. */
export function isCount(value: unknown): value is number {
  return Number.isInteger(value) && Number(value) >= 1 && Number(value) <= LARGEST_POOL;
}

function readHosts(host: unknown, port: unknown, path: unknown): PostgresHost[] | undefined {
  if (path !== undefined && path !== null) {
    const socket = typeof path === "string" ? socketHost(path) : undefined;
    if (socket === undefined) throw invalid("path must end with /.s.PGSQL. and the port");
    return [socket];
  }
  const ports = list(port);
  if (!ports.every((port) => typeof port === "number")) throw invalid("port must be a number");
  const hosts = list(host);
  if (!hosts.every((host) => typeof host === "string")) throw invalid("host must be a string");
  if (hosts.length === 0) {
    if (ports.length === 0) return undefined;
    hosts.push("localhost");
  }
  if (ports.length > 1 && ports.length !== hosts.length) {
    throw invalid("port must be one for all hosts or one for each");
  }
  return hosts.map((name, index) => {
    const port = ports[index] ?? ports[0];
    return port === undefined ? { host: name } : { host: name, port };
  });
}

function list(value: unknown): unknown[] {
  if (value === undefined || value === null) return [];
  return Array.isArray(value) ? [...(value as unknown[])] : [value];
}
