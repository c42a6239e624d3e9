/** Settings of an ioredis client. */

import { isDeepStrictEqual } from "node:util";
import type { RedisSettings } from "../native/exports.js";
import { isGiven, isPositive, toNumber } from "../options/clients.js";
import { readTls } from "../options/tls.js";
import { type Reading, readNodes } from "./connection.js";

/** The options that are strings, with their names in ioredis and here. */
const TEXTS = [
  ["host", "host"],
  ["path", "path"],
  ["username", "username"],
  ["password", "password"],
  ["connectionName", "connectionName"],
  ["keyPrefix", "clientKeyPrefix"],
] as const;

/** The same for options that are only used with Sentinels. */
const SENTINEL_TEXTS = [
  ["name", "name"],
  ["sentinelUsername", "sentinelUsername"],
  ["sentinelPassword", "sentinelPassword"],
] as const;

/** Reads `client.options`. Settings for retries and queues are not carried over: the native connection has its own rules. */
export function readIoredis(options: object): Reading {
  const fields = options as Record<string, unknown>;
  if (isGiven(fields.Connector)) return { obstacle: "the Connector" };
  const settings: RedisSettings = {};
  const bySentinel = Array.isArray(fields.sentinels) && fields.sentinels.length > 0;

  const texts = bySentinel ? [...TEXTS, ...SENTINEL_TEXTS] : TEXTS;
  const obstacle = readTexts(fields, texts, settings) ?? readNumbers(fields, settings);
  if (obstacle !== undefined) return { obstacle };
  if (bySentinel) return readSentinels(fields, settings);
  if (isGiven(fields.tls) && fields.tls !== false) {
    const reading = readTls(fields.tls);
    if ("obstacle" in reading) return reading;
    if (settings.path !== undefined) return { obstacle: "tls over path" };
    settings.tls = reading.tls;
  }
  return { settings };
}

/** Takes over the texts of these names; gives the name of one that is no text. */
function readTexts(
  fields: Record<string, unknown>,
  names: readonly (typeof TEXTS | typeof SENTINEL_TEXTS)[number][],
  settings: RedisSettings,
): string | undefined {
  for (const [theirs, ours] of names) {
    const value = fields[theirs];
    if (!isGiven(value) || value === "") continue;
    if (typeof value !== "string") return theirs;
    settings[ours] = value;
  }
  // Without a password ioredis does not log in.
  if (settings.password === undefined) delete settings.username;
  return undefined;
}

function readNumbers(
  { port, db, connectTimeout, commandTimeout }: Record<string, unknown>,
  settings: RedisSettings,
): string | undefined {
  if (isGiven(port)) settings.port = toNumber(port);
  if (isGiven(db)) {
    settings.db = toNumber(db);
    if (!(settings.db <= 255)) return "db";
  }
  // For timeouts, 0 means none in ioredis.
  if (isPositive(connectTimeout)) settings.connectTimeoutMs = connectTimeout;
  if (isPositive(commandTimeout)) settings.operationTimeoutMs = commandTimeout;
  return undefined;
}

function readSentinels(fields: Record<string, unknown>, settings: RedisSettings): Reading {
  const nodes = readNodes(fields.sentinels);
  if (nodes === undefined) return { obstacle: "sentinels" };
  settings.sentinels = nodes;
  delete settings.host;
  delete settings.port;
  delete settings.path;
  if (isGiven(fields.role) && fields.role !== "master") return { obstacle: "role" };
  for (const name of ["natMap", "preferredSlaves"]) {
    if (isGiven(fields[name])) return { obstacle: name };
  }
  // The native connection uses the same TLS settings for the server and the Sentinels.
  const server = fields.enableTLSForSentinelMode === true ? fields.tls : undefined;
  const sentinel = fields.sentinelTLS;
  if (!isGiven(server) && !isGiven(sentinel)) return { settings };
  if (!isDeepStrictEqual(server, sentinel)) return { obstacle: "sentinelTLS beside another tls" };
  const reading = readTls(server);
  if ("obstacle" in reading) return reading;
  settings.tls = reading.tls;
  return { settings };
}
