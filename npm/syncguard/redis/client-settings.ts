/** Reads the settings of clients, so that a native connection can be used in their place. */

import { isGeneratedMethod, isOwnMethod } from "../options/clients.js";
import { kindOfCluster, readCluster } from "./cluster.js";
import type { Reading } from "./connection.js";
import { readIoredis } from "./ioredis.js";
import { readNodeRedis } from "./node-redis.js";
import type { RedisClient } from "./types.js";

/** The members by which clients are recognised. */
type Features = {
  eval?: unknown;
  EVAL?: unknown;
  isOpen?: unknown;
  status?: unknown;
  connector?: unknown;
  sendCommand?: unknown;
  options?: unknown;
};

/** The settings of a client of ioredis or node-redis. Any other object is an obstacle. */
export function readClient(client: RedisClient): Reading {
  const cluster = kindOfCluster(client);
  const reading = cluster === undefined ? readSingle(client) : readCluster(client, cluster);
  if ("obstacle" in reading) return reading;
  const replaced = replacedMethod(client);
  return replaced === undefined ? reading : { obstacle: `${replaced}, which is not its class's,` };
}

function readSingle(client: RedisClient): Reading {
  const features = client as Features;
  const { options } = features;
  const read = readerOf(client, features);
  return read === undefined || typeof options !== "object" || options === null
    ? { obstacle: "the settings, which cannot be read," }
    : read(options);
}

function readerOf(client: RedisClient, features: Features): typeof readIoredis | undefined {
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

/** The methods that `eval` calls. */
function throughWhich(client: RedisClient): readonly string[] {
  if (!isNodeRedis(client)) return ["sendCommand"];
  if (kindOfCluster(client) !== undefined) return ["_execute"];
  // In version 4 they are not accessible.
  return "_executeCommand" in client ? ["_executeCommand", "sendCommand"] : [];
}

/** Only node-redis has its commands in capitals as well as in lower case. */
export function isNodeRedis(client: RedisClient): boolean {
  return typeof (client as Features).EVAL === "function";
}
