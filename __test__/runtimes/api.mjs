// The public API on SQLite, and on the Redis server at REDIS_URL if there is one: as ES modules.
// Needs a built package and nothing else: `node __test__/runtimes/api.mjs`, or with bun, or deno run -A.

import * as syncguard from "syncguard";
import { createRedisBackend } from "syncguard/redis";
import { createSqliteBackend } from "syncguard/sqlite";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import run from "./suite.cjs";

const folder = mkdtempSync(join(tmpdir(), "syncguard-runtimes-"));
const url = process.env.REDIS_URL;
try {
  await run(syncguard, {
    "SQLite file": () => createSqliteBackend(join(folder, "locks.db")),
    "SQLite in memory": () => createSqliteBackend(),
    ...(url ? { Redis: () => createRedisBackend(url, { keyPrefix: `p${process.pid}` }) } : {}),
  });
} finally {
  rmSync(folder, { recursive: true, force: true });
}
