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
  const library = handWrittenLibrary(redis, "theirs");
  return { pair: pairOf(library), close: async () => redis.disconnect() };
}

/** A lock library of those scripts on a client. */
export function handWrittenLibrary(redis, prefix) {
  redis.defineCommand("acquireLock", { numberOfKeys: 3, lua: coreScript("acquire") });
  redis.defineCommand("releaseLock", { numberOfKeys: 1, lua: coreScript("release") });
  return {
    async acquire({ key, ttlMs }) {
      const lockId = randomBytes(16).toString("base64url");
      const lockKey = `${prefix}:${key}`;
      const reply = await redis.acquireLock(
        ...[lockKey, `${prefix}:id:${lockId}`, `${prefix}:fence:${lockKey}`],
        ...[lockId, String(ttlMs), "1000", lockKey, key, `"key":"${key}"}`, String(ttlMs + 1_000)],
      );
      return { ok: reply[0] === 1, lockId };
    },
    async release({ lockId }) {
      return { ok: (await redis.releaseLock(`${prefix}:id:${lockId}`, lockId, "1000")) === 1 };
    },
  };
}
