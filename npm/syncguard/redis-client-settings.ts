/** Reads the settings of clients, so that a native connection can stand in for them. */

import type { RedisNativeConnection } from "./addon.js";
import { readIoredis } from "./redis-ioredis.js";
import { readNodeRedis } from "./redis-node-redis.js";
import type { RedisClient } from "./redis-types.js";

/** Settings for a connection that does what the client would, or what stands in the way. */
export type Reading = { settings: RedisNativeConnection } | { obstacle: string };

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
  // Who puts another function in its place wants it to be called.
  if (Object.hasOwn(client, "eval")) return { obstacle: "eval, which is not its class's," };
  const { options } = features;
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    return { obstacle: "the settings, which cannot be read," };
  }
  if (isNodeRedis(client)) {
    // A cluster or a pool has no state of one connection.
    if (typeof features.isOpen === "boolean") return readNodeRedis(options);
  } else if (
    typeof features.status === "string" &&
    typeof features.connector === "object" &&
    typeof features.sendCommand === "function"
  ) {
    return readIoredis(options);
  }
  return { obstacle: "the settings, which cannot be read," };
}

/** Commands in capitals beside those in small letters: only node-redis has them. */
export function isNodeRedis(client: RedisClient): boolean {
  return typeof (client as Features).EVAL === "function";
}
