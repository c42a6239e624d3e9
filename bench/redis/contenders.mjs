// Who takes part: each has `pair(index)`, which takes and releases a lock of its own.

import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Redis } from "ioredis";
import { built } from "../lib/built.mjs";
import { pairOf } from "../lib/pair.mjs";

const scripts = new URL("../../crates/syncguard/tests/redis/scripts/", import.meta.url);

/** A script of the core. */
export const coreScript = (name) =>
  readFileSync(fileURLToPath(new URL(`${name}.lua`, scripts)), "utf8");

/**
 * The same for all, so that in a cluster everybody's locks are in the same slots. They take turns, and leave no lock behind.
 */
export const PREFIX = "locks";

/** `address` is that of a server: what both take as the settings of a connection. */
export const open = {
  syncguard({ from, address }) {
    const { createRedisBackend } = built(from, "syncguard/redis");
    return { pair: pairOf(createRedisBackend(address, { keyPrefix: PREFIX })) };
  },

  /** The same two scripts, sent by hand: the least that a program on ioredis does. */
  ioredis: ({ address }) => ({ pair: pairOf(handWrittenLibrary(new Redis(address), PREFIX)) }),
};

/**
 * A lock library of those scripts on a client. In a cluster, all names of a lock begin with `startOf(key)`, which puts
 * them into one slot, and the script that releases it is given its name, too.
 */
export function handWrittenLibrary(redis, prefix, startOf) {
  const isInCluster = startOf !== undefined;
  redis.defineCommand("acquireLock", { numberOfKeys: 3, lua: coreScript("acquire") });
  redis.defineCommand("releaseLock", {
    numberOfKeys: isInCluster ? 2 : 1,
    lua: coreScript("release"),
  });
  const held = new Map();
  return {
    async acquire({ key, ttlMs }) {
      const lockId = randomBytes(16).toString("base64url");
      const start = isInCluster ? startOf(key) : prefix;
      const lockKey = `${start}:${key}`;
      const indexKey = `${start}:id:${lockId}`;
      const reply = await redis.acquireLock(
        ...[lockKey, indexKey, `${start}:fence:${lockKey}`],
        ...[lockId, String(ttlMs), "1000", lockKey, key, `"key":"${key}"}`, String(ttlMs + 1_000)],
      );
      if (isInCluster) held.set(lockId, [indexKey, lockKey]);
      return { ok: reply[0] === 1, lockId };
    },
    async release({ lockId }) {
      const keys = isInCluster ? held.get(lockId) : [`${prefix}:id:${lockId}`];
      held.delete(lockId);
      const where = isInCluster ? ["cluster"] : [];
      return { ok: (await redis.releaseLock(...keys, lockId, "1000", ...where)) === 1 };
    },
  };
}
