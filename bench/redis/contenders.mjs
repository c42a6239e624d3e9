// Who takes part: each has `pair(index)`, which takes and releases a lock of its own.

import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Redis } from "ioredis";
import { pairOf } from "../lib/pair.mjs";

const scripts = new URL("../../crates/syncguard/src/redis/", import.meta.url);

/** A script of the core. */
export const coreScript = (name) =>
  readFileSync(fileURLToPath(new URL(`${name}.lua`, scripts)), "utf8");

export async function ours(port) {
  const { createRedisBackend } = await import("syncguard/redis");
  const backend = createRedisBackend(`redis://127.0.0.1:${port}`, { keyPrefix: "ours" });
  return { pair: pairOf(backend), close: () => backend.close() };
}

/** The same two scripts, sent by hand: the least that a program on ioredis does. */
export function handWritten(port) {
  const redis = new Redis(port);
  redis.defineCommand("acquireLock", { numberOfKeys: 3, lua: coreScript("acquire") });
  redis.defineCommand("releaseLock", { numberOfKeys: 1, lua: coreScript("release") });
  return {
    async pair(index) {
      const lockId = randomBytes(16).toString("base64url");
      const key = `key:${index}`;
      const lockKey = `theirs:${key}`;
      const indexKey = `theirs:id:${lockId}`;
      const reply = await redis.acquireLock(
        ...[lockKey, indexKey, `theirs:fence:${lockKey}`],
        ...[lockId, "30000", "1000", lockKey, key, `"key":"${key}"}`, "31000"],
      );
      if (reply[0] !== 1) throw new Error("nobody else can hold this lock");
      const freed = await redis.releaseLock(indexKey, lockId, "1000");
      if (freed !== 1) throw new Error("the lock was not released");
    },
    close: async () => redis.disconnect(),
  };
}
