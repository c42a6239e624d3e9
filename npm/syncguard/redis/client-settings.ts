/** Reads the settings of clients, so that a native connection can stand in for them. */

import { isGeneratedMethod, isOwnMethod } from "../options/clients.js";
import type { Reading } from "./connection.js";
import { readIoredis } from "./ioredis.js";
import { readNodeRedis } from "./node-redis.js";
import type { RedisClient } from "./types.js";

/** What is looked at to tell clients apart. */
type Features = {
  eval?: unknown;
  EVAL?: unknown;
  isOpen?: unknown;
  status?: unknown;
  isCluster?: unknown;
  connector?: unknown;
  sendCommand?: unknown;
  options?: unknown;
};

/** Settings of ioredis and node-redis clients; anything else is an obstacle. */
export function readClient(client: RedisClient): Reading {
  const features = client as Features;
  if (features.isCluster === true) return { obstacle: "the cluster" };
  const { options } = features;
  const read = readerOf(client, features);
  if (read === undefined || typeof options !== "object" || options === null) {
    return { obstacle: "the settings, which cannot be read," };
  }
  const replaced = replacedMethod(client);
  return replaced === undefined
    ? read(options)
    : { obstacle: `${replaced}, which is not its class's,` };
}

function readerOf(client: RedisClient, features: Features): typeof readIoredis | undefined {
  if (Array.isArray(features.options)) return undefined;
  if (isNodeRedis(client)) {
    // A cluster or a pool has no state of one connection.
    return typeof features.isOpen === "boolean" ? readNodeRedis : undefined;
  }
  const isIoredis =
    typeof features.status === "string" &&
    typeof features.connector === "object" &&
    typeof features.sendCommand === "function";
  return isIoredis ? readIoredis : undefined;
}

/** What the client would do with a script other than its driver does: the name of the method. */
function replacedMethod(client: RedisClient): string | undefined {
  if (!isGeneratedMethod(client, "eval", ["get", "set", "del"])) return "eval";
  return throughWhich(client).find(
    (name) => !isOwnMethod(client, name, ["connect", "disconnect", "duplicate"]),
  );
}

/** The methods that `eval` goes through. */
function throughWhich(client: RedisClient): readonly string[] {
  if (!isNodeRedis(client)) return ["sendCommand"];
  // In version 4 they cannot be reached from outside.
  return "_executeCommand" in client ? ["_executeCommand", "sendCommand"] : [];
}

/** Commands in capitals beside those in small letters: only node-redis has them. */
export function isNodeRedis(client: RedisClient): boolean {
  return typeof (client as Features).EVAL === "function";
}
