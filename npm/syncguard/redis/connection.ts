/** Connection settings as users give them, in a URL or in options. */

import type { RedisNode, RedisSettings } from "../native/exports.js";
import { toNumber } from "../options/clients.js";
import { backendsOwn, checkKnownOptions } from "../options/known.js";
import { readLoginOption } from "../options/login.js";
import { readTls } from "../options/tls.js";
import { invalid, notAClient } from "../options/validation.js";
import type { RedisConnectionOptions } from "./types.js";

/** The settings for a connection equivalent to a client's, or the name of the setting that makes that impossible. */
export type Reading = { settings: RedisSettings } | { obstacle: string };

/** What gives parts of the login for each connection. */
export type LoginFunctions = { username?: () => unknown; password?: () => unknown };

/** Where a connection leads that a URL or options describe. */
export type Target = { settings: RedisSettings; login?: LoginFunctions };

/** The type of each option. */
const TYPES: Readonly<Record<keyof RedisConnectionOptions, string>> = {
  url: "string",
  host: "string",
  port: "number",
  path: "string",
  db: "number",
  username: "string or a function",
  password: "string or a function",
  tls: "object",
  nodes: "object",
  natMap: "object",
  sentinels: "object",
  name: "string",
  sentinelUsername: "string",
  sentinelPassword: "string",
  connectionName: "string",
  clientKeyPrefix: "string",
};

/** Other names for them, of clients and of other backends. */
const FOREIGN: Readonly<Record<string, string>> = {
  ...backendsOwn(["connectTimeoutMs", "operationTimeoutMs", "transport"], {
    connectTimeout: "connectTimeoutMs",
    commandTimeout: "operationTimeoutMs",
  }),
  connectionString: "url",
  uri: "url",
  database: "db",
  user: "username",
  pass: "password",
  ssl: "tls",
};

/**
 * Reads a URL or options.
 *
 * @throws LockError `InvalidArgument` that names the option
 */
export function readConnection(connection: unknown): Target {
  if (typeof connection === "string" && connection !== "") return { settings: { url: connection } };
  if (typeof connection !== "object" || connection === null || Array.isArray(connection)) {
    throw notAClient(
      "client must be a Redis client with eval(), a URL or connection options",
      connection,
    );
  }
  const { customCommand, invokeScript } = connection as Record<string, unknown>;
  if (typeof customCommand === "function" && typeof invokeScript === "function") {
    throw invalid(
      "client is one of Valkey GLIDE, whose connection cannot be used: pass its URL or connection options, such as " +
        '{ host, port, username, password, tls }, or { nodes } for a cluster (docs/redis.md, "Transports")',
    );
  }
  if ((connection as Record<string, unknown>).keyPrefix !== undefined) {
    throw invalid(
      "keyPrefix belongs to the backend's options; the option of ioredis is clientKeyPrefix here",
    );
  }
  checkKnownOptions(connection, Object.keys(TYPES), "Redis connection option", FOREIGN);
  const settings: Partial<Record<keyof RedisSettings, unknown>> = {};
  const login: LoginFunctions = {};
  for (const [key, option] of Object.entries(connection) as [keyof typeof TYPES, unknown][]) {
    // The options are those of ioredis, which also uses null for what is not given.
    if (option === undefined || option === null) continue;
    const value = readOption(key, option);
    if (typeof value === "function") login[key as "username"] = value as () => unknown;
    else if (value !== undefined) settings[key] = value;
  }
  const target: Target = { settings: settings as RedisSettings };
  return Object.keys(login).length === 0 ? target : { ...target, login };
}

/** Whether a URL, or what else names a node, asks for TLS. */
export function isTlsUrl(url: unknown): boolean {
  return typeof url === "string" && /^(redis|valkey)s[:+-]/i.test(url);
}

function readOption(name: keyof RedisConnectionOptions, value: unknown): unknown {
  if (name === "tls") return readTlsOption(value);
  if (name === "username" || name === "password") return readLoginOption(value, name);
  if (name === "sentinels") {
    const nodes = readNodes(value);
    if (nodes === undefined) throw invalid("sentinels must be a list of { host, port }");
    for (const node of value as (object | null | undefined)[]) {
      checkKnownOptions(node ?? {}, ["host", "port"], "part of sentinels");
    }
    return nodes;
  }
  if (name === "nodes") return readClusterNodes(value);
  if (name === "natMap") {
    const natMap = readNatMap(value);
    if (natMap !== undefined) return natMap;
    // Connections are made on a thread that cannot call into JavaScript.
    const end = typeof value === "function" ? "; a function cannot be called" : "";
    throw invalid(`natMap must be an object with a { host, port } for each host:port${end}`);
  }
  if (typeof value !== TYPES[name]) throw invalid(`${name} must be a ${TYPES[name]}`);
  return value;
}

function readTlsOption(value: unknown): RedisSettings["tls"] | undefined {
  if (value === false) return undefined;
  const reading = readTls(value);
  if ("tls" in reading) return reading.tls;
  if (reading.obstacle === "tls") throw invalid("tls must be an object, true or false");
  throw invalid(`${reading.obstacle} has a wrong type or is not an option`);
}

/** The nodes of a cluster. What is in a text is left to the core. */
function readClusterNodes(value: unknown): NonNullable<RedisSettings["nodes"]> {
  const nodes = Array.isArray(value) ? value.map(readClusterNode) : [undefined];
  if (nodes.includes(undefined)) {
    throw invalid("nodes must be a list of texts like host:port, or { host, port }");
  }
  return nodes as (RedisNode | string)[];
}

function readClusterNode(node: unknown): RedisNode | string | undefined {
  if (typeof node === "string") return node;
  if (typeof node !== "object" || node === null || Array.isArray(node)) return undefined;
  checkKnownOptions(node, ["host", "port"], "part of nodes");
  return readNodes([node])?.[0];
}

/** Addresses by addresses, if it is an object that has nothing else. */
export function readNatMap(value: unknown): Record<string, RedisNode> | undefined {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  const map: Record<string, RedisNode> = {};
  for (const [announced, to] of Object.entries(value) as [string, unknown][]) {
    const { host, port, ...rest } = (to ?? {}) as { host?: unknown; port?: unknown };
    const isAddress = typeof host === "string" && typeof port === "number";
    if (!isAddress || Object.keys(rest).length > 0) return undefined;
    map[announced] = { host, port };
  }
  return map;
}

/** A list of Sentinels; `undefined` if the value is not one. */
export function readNodes(value: unknown): RedisNode[] | undefined {
  if (!Array.isArray(value)) return undefined;
  const nodes: RedisNode[] = [];
  for (const node of value as unknown[]) {
    const { host = "localhost", port } = (node ?? {}) as { host?: unknown; port?: unknown };
    if (typeof host !== "string") return undefined;
    if (port === undefined || port === null) nodes.push({ host });
    else nodes.push({ host, port: toNumber(port) });
  }
  return nodes;
}
