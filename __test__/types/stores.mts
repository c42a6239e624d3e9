/** What the types promise of each store. Compiled, never run. */

import type { Firestore } from "@google-cloud/firestore";
import type { Cluster } from "ioredis";
import { createCluster } from "redis";
import { expectTypeOf } from "vitest";
import {
  createFirestoreBackend,
  createPostgresBackend,
  createRedisBackend,
  createSqliteBackend,
  type FirestoreGuard,
  type HeldLock,
  type HeldLocks,
  lock,
  type LockBackend,
  type LockHandle,
  type LocksHandle,
  type PostgresGuard,
  type PostgresTransaction,
  type RedisEvalOptions,
  type RedisGuard,
  type RedisReply,
  type SyncGuardBackend,
  type TryLockResult,
} from "syncguard";
import type {
  FirestoreBackendOptions,
  FirestoreCapabilities,
  FirestoreClient,
  FirestoreConfig,
  FirestoreConnectionOptions,
  LockDocument,
} from "syncguard/firestore";
import {
  createLock as createPostgresLock,
  type PostgresBackendOptions,
  type PostgresCapabilities,
  type PostgresConfig,
  type PostgresConnectionOptions,
} from "syncguard/postgres";
import {
  createLock as createRedisLock,
  type LockData,
  type RedisBackendOptions,
  type RedisCapabilities,
  type RedisClusterNode,
  type RedisConfig,
  type RedisConnectionOptions,
} from "syncguard/redis";
import type { SqliteBackendOptions, SqliteCapabilities } from "syncguard/sqlite";

const sqlite = createSqliteBackend(":memory:");

// Every backend is a LockBackend, and knows what it can do.
expectTypeOf(sqlite).toExtend<LockBackend<SqliteCapabilities>>();
expectTypeOf(sqlite.capabilities.backend).toEqualTypeOf<"sqlite">();
expectTypeOf(createRedisBackend).returns.toExtend<LockBackend<RedisCapabilities>>();
expectTypeOf(createPostgresBackend).returns.toExtend<LockBackend<PostgresCapabilities>>();
expectTypeOf(createFirestoreBackend).returns.toExtend<LockBackend<FirestoreCapabilities>>();
expectTypeOf<FirestoreCapabilities["timeAuthority"]>().toEqualTypeOf<"client">();
expectTypeOf(createFirestoreBackend).toBeCallableWith();
expectTypeOf(createFirestoreBackend)
  .parameter(0)
  .toEqualTypeOf<FirestoreClient | FirestoreConnectionOptions | undefined>();
expectTypeOf<Firestore>().toExtend<FirestoreClient>();

// Of the stores, Redis runs scripts, on every handle.
const redis = createRedisBackend("redis://h");
expectTypeOf((await redis.lock("k")).eval).toEqualTypeOf<RedisGuard["eval"]>();
expectTypeOf((await redis.lock(["a", "b"])).eval).returns.resolves.toEqualTypeOf<RedisReply>();
expectTypeOf((await redis.lock({ key: "k", slots: 2 })).eval)
  .parameter(1)
  .toEqualTypeOf<RedisEvalOptions | undefined>();
const tried = await redis.acquire({ key: "k", ttlMs: 1 });
if (tried.ok) expectTypeOf(tried.eval).toBeFunction();
await lock(redis, async ({ eval: run }) => await run("return 1"), { key: "k" });
await lock(redis, (handle) => handle.eval("return 1"), { key: ["a", "b"] });
await createRedisLock("redis://h")((handle) => handle.eval("return 1"), { key: "k" });
const ofAny: SyncGuardBackend = redis;
expectTypeOf(await ofAny.lock("k")).not.toHaveProperty("eval");
expectTypeOf(await sqlite.lock("k")).not.toHaveProperty("eval");
expectTypeOf(await createPostgresBackend("postgres://h").lock("k")).not.toHaveProperty("eval");

// What may be one of several can be called by what all have in common.
declare const several:
  | ReturnType<typeof createRedisBackend>
  | ReturnType<typeof createPostgresBackend>
  | ReturnType<typeof createFirestoreBackend>
  | typeof sqlite;
expectTypeOf((await several.lock("k")).fence).toBeString();
expectTypeOf((await several.lock({ key: "k", slots: 2 })).slot).toBeNumber();
expectTypeOf((await several.lock(["a", "b"])).fences.get("a")).toEqualTypeOf<string | undefined>();
const granted = await several.acquire({ key: "k", ttlMs: 1 });
if (granted.ok) expectTypeOf(granted.fence).toBeString();
await several.release({ lockId: "" });
await several.extend({ lockId: "", ttlMs: 1 });
await several.isLocked({ key: "k" });
await several.lookup({ key: "k" });
await several.forceRelease("k");
await several.releaseAll();
expectTypeOf(await several.tryLock("k", ({ fence }) => fence)).toEqualTypeOf<
  TryLockResult<string>
>();
await several.tryLock({ key: "k", slots: 2 }, ({ slot }) => slot.toFixed());
await several.tryLock(["a", "b"], ({ fences }) => fences.size);
await several.once("k", { due: "1" }, ({ fence }) => fence);
await several.lead("k", ({ term }) => term);
declare const bound: ReturnType<typeof createRedisLock> | ReturnType<typeof createPostgresLock>;
expectTypeOf(await bound(({ fence }) => fence, { key: "k" })).toBeString();
await bound(({ slot }) => slot.toFixed(), { key: { key: "k", slots: 2 } });
// Whoever knows the store has what it can do besides, and nothing else.
await redis.tryLock("k", ({ eval: run }) => run("return 1"));
// @ts-expect-error PostgreSQL runs no scripts
await createPostgresBackend("postgres://h").tryLock("k", ({ eval: run }) => run("return 1"));
// @ts-expect-error nor is it known of one of several
await several.tryLock("k", ({ eval: run }) => run("return 1"));

// Options and connections.
({
  user: "u",
  database: "d",
  connection: { statement_timeout: 1 },
}) satisfies PostgresConnectionOptions;
// @ts-expect-error one name for each setting
({ connectionString: "postgres://h" }) satisfies PostgresConnectionOptions;
expectTypeOf<RedisBackendOptions["keyPrefix"]>().toEqualTypeOf<string | undefined>();
expectTypeOf<PostgresBackendOptions["tableName"]>().toEqualTypeOf<string | undefined>();
expectTypeOf<FirestoreBackendOptions["collection"]>().toEqualTypeOf<string | undefined>();
expectTypeOf<SqliteBackendOptions["path"]>().toEqualTypeOf<string | undefined>();
expectTypeOf<Cluster>().toExtend<Parameters<typeof createRedisBackend>[0]>();
expectTypeOf(createCluster({ rootNodes: [] })).toExtend<Parameters<typeof createRedisBackend>[0]>();
expectTypeOf<RedisConnectionOptions["nodes"]>().toEqualTypeOf<
  readonly (string | RedisClusterNode)[] | undefined
>();
({
  nodes: ["10.0.0.1:7000", "rediss://u:p@h", { host: "h" }, { port: 7000 }],
  natMap: { "10.0.0.1:7000": { host: "127.0.0.1", port: 17_000 } },
}) satisfies RedisConnectionOptions;
// @ts-expect-error what nodes announce is not known in advance, and the thread that needs it runs no JavaScript
({ nodes: ["h"], natMap: () => null }) satisfies RedisConnectionOptions;
// @ts-expect-error a port is no node
({ nodes: [7000] }) satisfies RedisConnectionOptions;
expectTypeOf<RedisConfig["keyPrefix"]>().toBeString();
expectTypeOf<PostgresConfig["tableName"]>().toBeString();
expectTypeOf<FirestoreConfig["collection"]>().toBeString();
expectTypeOf<LockData["fence"]>().toBeString();
expectTypeOf<LockDocument["fence"]>().toBeString();

// Guards: where the store can check the holder.
declare const heldInPostgres: HeldLock<PostgresCapabilities>;
expectTypeOf(heldInPostgres.guard).parameters.toEqualTypeOf<[tx: PostgresTransaction]>();
expectTypeOf(heldInPostgres.guardFailed(new Error())).toEqualTypeOf<Promise<boolean>>();
expectTypeOf(heldInPostgres.guardQuery()).toEqualTypeOf<{ text: string; values: string[] }>();
expectTypeOf<HeldLocks<PostgresCapabilities>>().toExtend<PostgresGuard>();
expectTypeOf<LocksHandle<PostgresCapabilities>>().toExtend<PostgresGuard>();
expectTypeOf<LockHandle<FirestoreCapabilities>>().toExtend<FirestoreGuard>();
// @ts-expect-error a lock in SQLite has none
void ({} as HeldLock<SqliteCapabilities>).guard;
// @ts-expect-error nor has one of which the store is not known
void ({} as HeldLock).guard;
