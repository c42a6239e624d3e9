/** Processes on the TypeScript library and on this one share one store. */

import { afterAll, beforeAll } from "vitest";
import { createRedisBackend } from "syncguard/redis";
import { type Library, testFleet, testSides } from "../support/mixed-fleet";
import { type RedisServer, startRedis } from "../support/redis";
import type { Backend } from "../support/suite";
// @ts-expect-error a program of its own, in plain JavaScript
import { typescriptLibrary } from "./fixtures/typescript-library.mjs";

let server: RedisServer;
let backend: Backend;
let theirs: Library;
beforeAll(async () => {
  server = await startRedis();
  backend = createRedisBackend(server.url);
  theirs = (typescriptLibrary as (redis: unknown) => Library)(server.admin);
});
afterAll(async () => {
  await backend.close();
  await server.stop();
});

testFleet({
  program: "../../redis/fixtures/fleet.mjs",
  members: () => ["ours", "theirs", "ours", "theirs"].map((mainly) => [server.url, mainly]),
  goal: 150,
  given: async () => {
    const keys = await server.admin.keys("fences:*");
    return await Promise.all(keys.map((key) => server.admin.lrange(key, 0, -1)));
  },
});

testSides({
  ours: () => backend,
  theirs: () => theirs,
  nowMs: async () => {
    const [seconds, micros] = await server.admin.time();
    return Number(seconds) * 1_000 + Number(micros) / 1_000;
  },
  unknown: { unknown: { expiresAtMs: 1 } },
});
