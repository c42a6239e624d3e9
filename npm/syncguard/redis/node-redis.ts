/** Settings of a client of node-redis 4 or 5. */

import type { RedisSettings } from "../native/exports.js";
import { isGiven, isPositive, toNumber } from "../options/clients.js";
import { readTls } from "../options/tls.js";
import type { Reading } from "./connection.js";

/** Reads `client.options`. node-redis has already put the parts of a URL into the other fields. */
export function readNodeRedis(options: object): Reading {
  const { socket, username, password, credentialsProvider, name, database, commandOptions } =
    options as Record<string, unknown>;
  const settings: RedisSettings = {};

  for (const [theirs, ours, value] of [
    ["username", "username", username],
    ["password", "password", password],
    ["name", "connectionName", name],
  ] as const) {
    if (!isGiven(value) || value === "") continue;
    if (typeof value !== "string") return { obstacle: theirs };
    settings[ours] = value;
  }
  // node-redis turns a user name and a password into a provider. A provider of the user's cannot be called in advance.
  const hasLogin = isGiven(username) || isGiven(password);
  if (isGiven(credentialsProvider) && !hasLogin) return { obstacle: "credentialsProvider" };
  if (settings.username !== undefined) settings.password ??= "";

  if (isGiven(database)) {
    const db = toNumber(database);
    if (!(db <= 255)) return { obstacle: "database" };
    settings.db = db;
  }
  const { timeout } = (commandOptions ?? {}) as { timeout?: unknown };
  if (isPositive(timeout)) settings.operationTimeoutMs = timeout;
  return readSocket((socket ?? {}) as Record<string, unknown>, settings);
}

function readSocket(socket: Record<string, unknown>, settings: RedisSettings): Reading {
  const { host, port, path, tls, connectTimeout, lookup } = socket;
  if (isGiven(lookup)) return { obstacle: "socket.lookup" };
  if (isPositive(connectTimeout)) settings.connectTimeoutMs = connectTimeout;
  if (tls === true) {
    const reading = readTls(socket, true);
    if ("obstacle" in reading) return { obstacle: reading.obstacle.replace(/^tls/, "socket") };
    settings.tls = reading.tls;
  } else if (isGiven(path)) {
    if (typeof path !== "string") return { obstacle: "socket.path" };
    settings.path = path;
    return { settings };
  }
  if (isGiven(host)) {
    if (typeof host !== "string") return { obstacle: "socket.host" };
    settings.host = host;
  }
  if (isGiven(port)) settings.port = toNumber(port);
  return { settings };
}
