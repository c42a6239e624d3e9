/** Connection settings as users give them, in a URL or in options. */

import type {
  PostgresHost,
  PostgresParameter,
  PostgresSettings,
  PostgresTlsSettings,
} from "../native/exports.js";
import { checkKnownOptions } from "../options/known.js";
import { checkObject, invalid } from "../options/validation.js";
import { readParameters, readSslObject, socketHost, type Target } from "./target.js";
import type { PostgresConnectionOptions } from "./types.js";

/** How each option is converted to settings. */
const READERS: Readonly<
  Record<keyof PostgresConnectionOptions, (value: unknown, target: Target, name: string) => void>
> = {
  url: readUrl,
  connectionString: readUrl,
  // Read together, after the others.
  host: () => undefined,
  port: () => undefined,
  path: () => undefined,
  database: text("database"),
  user: text("user"),
  username: text("user"),
  password: readPassword,
  pass: readPassword,
  ssl: (value, { connection }) => (connection.tls = readSsl(value)),
  max: (value, { connection }, name) => (connection.poolSize = count(value, name)),
  connect_timeout: (value, target) => {
    readConnectTimeout(value, target, "connect_timeout", 1000);
  },
  connectionTimeoutMillis: (value, target) => {
    readConnectTimeout(value, target, "connectionTimeoutMillis", 1);
  },
  application_name: text("applicationName"),
  options: text("options"),
  connection: (value, { connection }) => {
    checkObject(value, "connection");
    const parameters = readParameters(value);
    if (parameters === undefined) {
      throw invalid("connection must hold strings, numbers and booleans");
    }
    addParameters(connection, parameters);
  },
  statement_timeout: readTimeout,
  lock_timeout: readTimeout,
  target_session_attrs: text("targetSessionAttrs"),
  prepare: (value, { connection }) => {
    if (typeof value !== "boolean") throw invalid("prepare must be a boolean");
    connection.prepare = value;
  },
};

/** Options of pg and postgres.js that do not affect where to connect and as whom. */
const WITHOUT_MEANING: ReadonlySet<string> = new Set([
  "min",
  "idle_timeout",
  "idleTimeoutMillis",
  "max_lifetime",
  "maxLifetimeSeconds",
  "maxUses",
  "allowExitOnIdle",
  "keepAlive",
  "keepAliveInitialDelayMillis",
  "keep_alive",
  "fetch_types",
  "onnotice",
]);

/**
 * Reads a URL or options.
 *
 * @throws LockError `InvalidArgument` that names the option
 */
export function readConnection(given: unknown): Target {
  if (typeof given === "string" && given !== "") return { connection: { url: withScheme(given) } };
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    throw invalid(
      "sql must be a postgres.js or pg client, a postgres:// URL or connection options",
    );
  }
  const target: Target = { connection: {} };
  for (const [name, value] of Object.entries(given) as [string, unknown][]) {
    // pg also uses null for what is not given.
    if (value === undefined || value === null || WITHOUT_MEANING.has(name)) continue;
    checkKnownOptions({ [name]: value }, Object.keys(READERS), "connection option");
    READERS[name as keyof PostgresConnectionOptions](value, target, name);
  }
  const { host, port, path } = given as PostgresConnectionOptions;
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
  if (typeof value === "function") target.password = () => (value as () => unknown)();
  else if (typeof value === "string") target.connection.password = value;
  else throw invalid(`${name} must be a string or a function`);
}

function readSsl(value: unknown): PostgresTlsSettings {
  if (value === false) return { mode: "disable" };
  if (typeof value === "string") return { mode: value };
  if (value !== true) checkObject(value, "ssl");
  const reading = readSslObject(value);
  if ("tls" in reading) return reading.tls;
  throw invalid(`${reading.obstacle} has a wrong type or is not an option`);
}

function count(value: unknown, name: string): number {
  if (!isCount(value)) throw invalid(`${name} must be a whole number from 1 to ${LARGEST_POOL}`);
  return value;
}

const LARGEST_POOL = 10_000;

/** Whether a value is a possible size of a pool. */
export function isCount(value: unknown): value is number {
  return Number.isInteger(value) && Number(value) >= 1 && Number(value) <= LARGEST_POOL;
}

function readConnectTimeout(
  value: unknown,
  { connection }: Target,
  name: string,
  unitMs: number,
): void {
  if (typeof value !== "number" || !(value >= 0)) {
    throw invalid(`${name} must be a number that is not negative`);
  }
  // To clients, 0 means no limit. Here the operation's own limit still applies.
  if (value > 0) connection.connectTimeoutMs = value * unitMs;
}

function readTimeout(value: unknown, { connection }: Target, name: string): void {
  if (!Number.isInteger(value) || Number(value) < 0) {
    throw invalid(`${name} must be a whole number of milliseconds`);
  }
  addParameters(connection, [{ name, value: String(value) }]);
}

function addParameters(
  connection: PostgresSettings,
  parameters: readonly PostgresParameter[],
): void {
  connection.parameters = [...(connection.parameters ?? []), ...parameters];
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
