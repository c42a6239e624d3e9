import { createRequire } from "node:module";
import { describe, expect, test } from "vitest";
import * as index from "syncguard";
import * as common from "syncguard/common";
import * as dashboard from "syncguard/dashboard";
import * as firestore from "syncguard/firestore";
import * as forrst from "syncguard/forrst";
import * as otel from "syncguard/otel";
import * as postgres from "syncguard/postgres";
import * as redis from "syncguard/redis";
import * as redlock from "syncguard/redlock";
import * as sqlite from "syncguard/sqlite";
import * as testing from "syncguard/testing";

const require = createRequire(import.meta.url);
const words = (text: string): string[] => text.trim().split(/\s+/);

const SHARED = words(`
  LockError lock lead once acquireHandle decorateAcquireResult withTelemetry getByKey getById getByKeyRaw getByIdRaw owns hasFence
  sanitizeLockInfo validateLockId normalizeAndValidateKey generateLockId hashKey makeStorageKey isLive
  calculateRedisServerTimeMs TIME_TOLERANCE_MS BACKEND_DEFAULTS BACKEND_LIMITS FENCE_THRESHOLDS LOCK_DEFAULTS
  MAX_KEY_LENGTH_BYTES RESERVE_BYTES setDefaultBackend
`);
const FACTORIES = words(`
  createRedisBackend createPostgresBackend createFirestoreBackend createSqliteBackend
`);
const HELPERS = words(`
  FAILURE_REASON attachRawData checkAborted createAutoLock createDisposableHandle delay formatFence logFenceWarning
  mapBackendObservation mapFirestoreConditions mapRedisScriptResult mapToMutationResult mergeAcquisitionConfig
  mergeBackendConfig
`);

const entryPoints: [string, Record<string, unknown>, string[]][] = [
  ["syncguard", index, [...SHARED, ...FACTORIES]],
  ["syncguard/common", common, [...SHARED, ...HELPERS]],
  ["syncguard/redis", redis, ["createRedisBackend", "createLock"]],
  ["syncguard/postgres", postgres, ["createPostgresBackend", "createLock", "setupSchema"]],
  ["syncguard/firestore", firestore, ["createFirestoreBackend", "createLock"]],
  ["syncguard/sqlite", sqlite, ["createSqliteBackend", "createLock"]],
  [
    "syncguard/redlock",
    redlock,
    ["ExecutionError", "Lock", "Redlock", "ResourceLockedError", "default"],
  ],
  ["syncguard/testing", testing, ["createTestBackend", "TestClock"]],
  ["syncguard/dashboard", dashboard, ["createDashboard"]],
  ["syncguard/otel", otel, ["instrument"]],
  ["syncguard/forrst", forrst, ["createAtomicLock"]],
];

describe.each(entryPoints)("%s", (name, esm, names) => {
  test("exports what it should", () => {
    expect(Object.keys(esm).sort()).toEqual([...names].sort());
  });

  test("is the same in CommonJS", () => {
    const cjs = require(name) as Record<string, unknown>;
    expect(Object.keys(cjs).sort()).toEqual(Object.keys(esm).sort());
    for (const [key, value] of Object.entries(esm)) expect(cjs[key]).toBe(value);
  });
});

test("entry points share their functions", () => {
  for (const name of SHARED) expect(Reflect.get(common, name)).toBe(Reflect.get(index, name));
  expect(index.createSqliteBackend).toBe(sqlite.createSqliteBackend);
  expect(index.createRedisBackend).toBe(redis.createRedisBackend);
  expect(index.createFirestoreBackend).toBe(firestore.createFirestoreBackend);
  expect(index.createPostgresBackend).toBe(postgres.createPostgresBackend);
});
