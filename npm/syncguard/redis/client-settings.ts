/** Reads the settings of clients, so that a native connection can be used in their place. */

import type { RedisSettings } from "../native/exports.js";
import { changeOf, isGeneratedMethod, isOwnMethod } from "../options/clients.js";
import { kindOfCluster, readCluster } from "./cluster.js";
import type { Reading } from "./connection.js";
import { readIoredis } from "./ioredis.js";
import { readNodeRedis } from "./node-redis.js";
import type { RedisClient } from "./types.js";

/** The members by which clients are recognised. */
type ClientMembers = {
  eval?: unknown;
  EVAL?: unknown;
  isOpen?: unknown;
  status?: unknown;
  connector?: unknown;
  sendCommand?: unknown;
  options?: unknown;
  condition?: { select?: unknown } | null;
  prevCondition?: { select?: unknown } | null;
};

/** The settings of a client of ioredis or node-redis. Any other object is an obstacle. */
export function readClient(client: RedisClient): Reading {
  const change = changeOf(client);
  if (change !== undefined) return { obstacle: change };
  const reading = readSettings(client);
  if ("obstacle" in reading) return reading;
  const replaced = replacedMethod(client);
  return replaced === undefined ? reading : { obstacle: `${replaced}, which is not its class's,` };
}

/** The settings as they are now, whatever became of the client's methods. */
export function readSettings(client: RedisClient): Reading {
  const cluster = kindOfCluster(client);
  return cluster === undefined ? readSingle(client) : readCluster(client, cluster);
}

function readSingle(client: RedisClient): Reading {
  const features = client as ClientMembers;
  const { options } = features;
  const read = readerOf(client, features);
  if (read === undefined || typeof options !== "object" || options === null) {
    return { obstacle: "the settings, which cannot be read," };
  }
  const reading = read(options);
  if ("settings" in reading) selectCurrent(reading.settings, features);
  return reading;
}

/** Puts the database that an ioredis client has selected by a command into its settings. */
function selectCurrent(settings: RedisSettings, { condition, prevCondition }: ClientMembers): void {
  // While it connects again, the former state, to which it will return, is beside the new one.
  const selected = prevCondition?.select ?? condition?.select;
  if (typeof selected === "number") settings.db = selected;
}

function readerOf(client: RedisClient, features: ClientMembers): typeof readIoredis | undefined {
  if (Array.isArray(features.options)) return undefined;
  if (isNodeRedis(client)) {
    // A pool does not have `isOpen` in all versions, and its `options` are about something else.
    return typeof features.isOpen === "boolean" ? readNodeRedis : undefined;
  }
  const isIoredis =
    typeof features.status === "string" &&
    typeof features.connector === "object" &&
    typeof features.sendCommand === "function";
  return isIoredis ? readIoredis : undefined;
}

/** The name of a method that runs scripts and is not the driver's own. */
function replacedMethod(client: RedisClient): string | undefined {
  if (!isGeneratedMethod(client, "eval", ["get", "set", "del"])) return "eval";
  return throughWhich(client).find(
    (name) => !isOwnMethod(client, name, ["connect", "disconnect", "duplicate"]),
  );
}

/** The methods that connect the client, and those that `eval` calls. */
function throughWhich(client: RedisClient): readonly string[] {
  if (!isNodeRedis(client)) return ["connect", "sendCommand"];
  if (kindOfCluster(client) !== undefined) return ["connect", "_execute"];
  // In version 4 the others are not accessible.
  return "_executeCommand" in client ? ["connect", "_executeCommand", "sendCommand"] : ["connect"];
}

/** Only node-redis has its commands in capitals as well as in lower case. */
export function isNodeRedis(client: RedisClient): boolean {
  return typeof (client as ClientMembers).EVAL === "function";
}
