/** The stores that every behaviour must hold on. */

import { join } from "node:path";
import type { OnLost, SyncGuardBackend } from "syncguard";
import { createSqliteBackend } from "syncguard/sqlite";
import { createTestBackend } from "syncguard/testing";
import { firestoreByClient, firestoreByOptions } from "./firestore-stores";
import { PATIENT } from "./in-time";
import {
  postgresBehindPgBouncer,
  postgresByPostgresJs,
  postgresByUrl,
  postgresOverSocket,
  postgresOverTls,
  postgresThroughPg,
} from "./postgres-stores";
import {
  redis62By,
  redisByClient,
  redisBySentinel,
  redisByUrl,
  redisCluster,
  redisClusterByIoredis,
  redisClusterByNodeRedis,
  redisOverTls,
} from "./redis-stores";
import { temporaryFolder } from "./temp";

export type BehaviorOptions = {
  cleanupInIsLocked?: boolean;
  onReleaseError?: (error: Error, context: { lockId: string; key: string; source: string }) => void;
  onLost?: OnLost;
  disposeTimeoutMs?: number;
};

export type Store = {
  /** A backend on the store; all of them see the same locks. */
  connect: (options?: BehaviorOptions) => SyncGuardBackend;
  close: () => Promise<void>;
};

export type Opener = () => Promise<Store> | Store;

/** One line for each store. */
export const stores: Readonly<Record<string, Opener>> = {
  "SQLite file": sqliteFile,
  "SQLite in memory": () =>
    shared((options) => createSqliteBackend(":memory:", { ...PATIENT, ...options })),
  "a test backend": testStore,
  "PostgreSQL at a URL": postgresByUrl,
  "PostgreSQL by a postgres.js client": () => postgresByPostgresJs("native"),
  "PostgreSQL through a postgres.js client": () => postgresByPostgresJs("client"),
  "PostgreSQL through a pg pool": postgresThroughPg,
  "PostgreSQL over TLS with SCRAM": postgresOverTls,
  "PostgreSQL over a unix socket": postgresOverSocket,
  "PostgreSQL behind PgBouncer": postgresBehindPgBouncer,
  "Redis at a URL": redisByUrl,
  "Redis by an ioredis client": () => redisByClient("native"),
  "Redis through an ioredis client": () => redisByClient("client"),
  "Redis 6.2": () => redis62By("native"),
  "Redis 6.2 through an ioredis client": () => redis62By("client"),
  "Redis over TLS with ACL": redisOverTls,
  "Redis over Sentinel": redisBySentinel,
  "Redis Cluster at a URL": () => redisCluster("url"),
  "Redis Cluster by nodes": () => redisCluster("nodes"),
  "Redis Cluster by a client of ioredis": () => redisClusterByIoredis("native"),
  "Redis Cluster through a client of ioredis": () => redisClusterByIoredis("client"),
  "Redis Cluster by a client of node-redis": () => redisClusterByNodeRedis("native"),
  "Redis Cluster through a client of node-redis": () => redisClusterByNodeRedis("client"),
  "Firestore by options": firestoreByOptions,
  "Firestore by a client of Google": () => firestoreByClient("native"),
  "Firestore through a client of Google": () => firestoreByClient("client"),
};

function sqliteFile(): Store {
  const folder = temporaryFolder();
  const opened: SyncGuardBackend[] = [];
  return {
    connect: (options) => {
      const backend = createSqliteBackend(join(folder.path, "locks.db"), {
        ...PATIENT,
        ...options,
      });
      opened.push(backend);
      return backend;
    },
    close: async () => {
      await Promise.all(opened.map((backend) => backend.close()));
      folder.remove();
    },
  };
}

/** One store in memory, which any number of backends share. */
function testStore(): Store {
  const sharing = createTestBackend();
  return {
    connect: (options) => createTestBackend({ ...options, sharing }),
    close: () => sharing.close(),
  };
}

/** A store that nothing but its one backend sees. */
function shared(create: (options?: BehaviorOptions) => SyncGuardBackend): Store {
  const opened: SyncGuardBackend[] = [];
  const open = (options?: BehaviorOptions): SyncGuardBackend => {
    const backend = create(options);
    opened.push(backend);
    return backend;
  };
  let plain: SyncGuardBackend | undefined;
  return {
    connect: (options) => (options === undefined ? (plain ??= open()) : open(options)),
    close: async () => {
      await Promise.all(opened.map((backend) => backend.close()));
    },
  };
}
