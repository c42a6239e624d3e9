/**
 * A program of somebody who uses SyncGuard 2.5, by the signatures that its reference has. It is compiled here; the rehearsal of
 * a release (scripts/rehearse.mjs) also compiles and runs it in a project in which only the version was changed, on a Redis whose
 * port is its argument.
 */

import { type Firestore } from "@google-cloud/firestore";
import { Redis } from "ioredis";
import type postgres from "postgres";
import {
  type AcquireResult,
  type AcquisitionOptions,
  BACKEND_DEFAULTS,
  BACKEND_LIMITS,
  type BackendCapabilities,
  FENCE_THRESHOLDS,
  type Fence,
  generateLockId,
  getById,
  getByIdRaw,
  getByKey,
  getByKeyRaw,
  hasFence,
  hashKey,
  type LockBackend,
  type LockConfig,
  LockError,
  type LockEvent,
  LOCK_DEFAULTS,
  MAX_KEY_LENGTH_BYTES,
  normalizeAndValidateKey,
  owns,
  RESERVE_BYTES,
  validateLockId,
  withTelemetry,
} from "syncguard";
import { createFirestoreBackend, createLock as createFirestoreLock } from "syncguard/firestore";
import {
  createLock as createPostgresLock,
  createPostgresBackend,
  setupSchema,
} from "syncguard/postgres";
import { createLock, createRedisBackend } from "syncguard/redis";

const redis = new Redis(Number(process.argv[2]));

function check(what: string, isSo: boolean): void {
  if (!isSo) throw new Error(`${what} is not as in 2.5`);
}

// The function of a factory, with everything that its configuration has.
const lock = createLock(redis, { keyPrefix: "upgrade", cleanupInIsLocked: false });
const acquisition: AcquisitionOptions = {
  maxRetries: 20,
  retryDelayMs: 100,
  backoff: "exponential",
  jitter: "equal",
  timeoutMs: 10_000,
  signal: new AbortController().signal,
};
const config: LockConfig & { acquisition?: AcquisitionOptions } = {
  key: "resource:123",
  ttlMs: 60_000,
  signal: new AbortController().signal,
  acquisition,
  onReleaseError: (error: Error, context: { lockId: string; key: string }) => {
    console.error(`failed to release ${context.key}:`, error);
  },
};
const done: string = await lock(async () => "done", config);
check("what lock() gives", done === "done");

// A backend.
const backend = createRedisBackend(redis, { keyPrefix: "upgrade" });
check("supportsFencing", backend.capabilities.supportsFencing);
check("timeAuthority", backend.capabilities.timeAuthority === "server");

const first = await backend.acquire({ key: "payment:123", ttlMs: BACKEND_DEFAULTS.ttlMs });
if (!first.ok) throw new Error(first.reason);
const { lockId, expiresAtMs, fence } = first;
const text: Fence = fence;
check("a fence", /^\d{15}$/.test(text) && text < FENCE_THRESHOLDS.MAX);
check("expiresAtMs", expiresAtMs > Date.now());
const second = await backend.acquire({ key: "payment:123", ttlMs: 1_000 });
check("a lock that is held", !second.ok && second.reason === "locked");
check("isLocked()", await backend.isLocked({ key: "payment:123" }));

const extended = await backend.extend({ lockId, ttlMs: 60_000 });
check("extend()", extended.ok && extended.expiresAtMs > expiresAtMs);
check("owns()", await owns(backend, lockId));
const byKey = await getByKey(backend, "payment:123");
check("getByKey()", byKey?.fence === fence && byKey.keyHash === hashKey("payment:123"));
check("getById()", (await getById(backend, lockId))?.fence === fence);
check("lookup()", (await backend.lookup({ lockId }))?.fence === fence);
check("getByKeyRaw()", (await getByKeyRaw(backend, "payment:123"))?.lockId === lockId);
check("getByIdRaw()", (await getByIdRaw(backend, lockId))?.key === "payment:123");
check("release()", (await backend.release({ lockId })).ok);
check("a second release()", !(await backend.release({ lockId })).ok);
check("a lock that is gone", (await getByKey(backend, "payment:123")) === null);

// Code that knows no backend.
function fenceOf<C extends BackendCapabilities>(result: AcquireResult<C>): Fence | undefined {
  return hasFence(result) ? result.fence : undefined;
}
async function holds(any: LockBackend): Promise<boolean> {
  const result = await any.acquire({ key: "any", ttlMs: 10_000 });
  if (!result.ok) return false;
  return (await any.release({ lockId: result.lockId })).ok;
}
check("a backend of any kind", await holds(backend));
const scoped = await backend.acquire({ key: "scoped", ttlMs: 10_000 });
check("hasFence()", (fenceOf(scoped) ?? "").length === 15);
if (scoped.ok) await scoped.release();

// Telemetry.
const events: LockEvent[] = [];
const observed = withTelemetry(backend, {
  onEvent: (event) => events.push(event),
  includeRaw: false,
});
check("a backend with telemetry", await holds(observed));
await new Promise((resolve) => setTimeout(resolve));
check(
  "events",
  events.map(({ type, result }) => `${type} ${result}`).join() === "acquire ok,release ok",
);
check(
  "a redacted event",
  events.every((event) => event.key === undefined),
);

// Errors, checks and constants.
try {
  validateLockId("short");
  throw new Error("validateLockId() takes anything");
} catch (error) {
  if (!(error instanceof LockError)) throw error;
  check("a code", error.code === "InvalidArgument");
}
const other = await backend.acquire({ key: "busy", ttlMs: 10_000 });
try {
  await lock(() => "never", { key: "busy", acquisition: { maxRetries: 1, timeoutMs: 300 } });
  throw new Error("a lock that is held was given");
} catch (error) {
  if (!(error instanceof LockError)) throw error;
  check("a busy lock's code", error.code === "AcquisitionTimeout");
}
if (other.ok) await backend.release({ lockId: other.lockId });
validateLockId(generateLockId());
check("a normalised key", normalizeAndValidateKey("e\u0301") === "\u00e9");
check("LOCK_DEFAULTS", LOCK_DEFAULTS.timeoutMs === 5_000 && LOCK_DEFAULTS.maxRetries === 10);
check("limits", BACKEND_LIMITS.REDIS === 1_000 && RESERVE_BYTES.REDIS === 26);
check("MAX_KEY_LENGTH_BYTES", MAX_KEY_LENGTH_BYTES === 512);

/** The other stores by their signatures; compiled and not called. */
export async function others(sql: postgres.Sql, db: Firestore): Promise<void> {
  const tables = { tableName: "app_locks", fenceTableName: "app_fence_counters" };
  await setupSchema(sql, tables);
  await createPostgresLock(sql, tables)(async () => undefined, { key: "a" });
  const onPostgres = createPostgresBackend(sql, { ...tables, cleanupInIsLocked: true });
  const collections = { collection: "app_locks", fenceCollection: "app_fences" };
  await createFirestoreLock(db, collections)(() => 1, { key: "a" });
  const onFirestore = createFirestoreBackend(db, { ...collections, cleanupInIsLocked: true });
  for (const each of [onPostgres, onFirestore]) {
    await using result = await each.acquire({ key: "a", ttlMs: 1_000 });
    if (result.ok) console.log(result.fence);
  }
}

await redis.quit();
console.log("as in 2.5");
