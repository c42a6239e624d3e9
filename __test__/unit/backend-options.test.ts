import { describe, expect, test } from "vitest";
import { createFirestoreBackend, type FirestoreBackendOptions } from "syncguard/firestore";
import { createPostgresBackend, type PostgresBackendOptions } from "syncguard/postgres";
import { createRedisBackend, type RedisBackendOptions } from "syncguard/redis";
import { createSqliteBackend, type SqliteBackendOptions } from "syncguard/sqlite";
import { thrownLockError } from "../support/errors";

const common = {
  cleanupInIsLocked: null,
  onReleaseError: null,
  onLost: null,
  disposeTimeoutMs: null,
};
const onServers = { ...common, operationTimeoutMs: null, transport: null };

/** Every option of each backend, not given. */
const NULLS = {
  sqlite: {
    ...common,
    path: null,
    operationTimeoutMs: null,
    allowNetworkFileSystem: null,
  } satisfies Record<keyof SqliteBackendOptions, null>,
  redis: {
    ...onServers,
    keyPrefix: null,
    replicas: null,
    fenceTtlMs: null,
    connectTimeoutMs: null,
  } satisfies Record<keyof RedisBackendOptions, null>,
  postgres: {
    ...onServers,
    tableName: null,
    fenceTableName: null,
    connectTimeoutMs: null,
    poolSize: null,
    prepare: null,
    durableReleases: null,
  } satisfies Record<keyof PostgresBackendOptions, null>,
  firestore: {
    ...onServers,
    collection: null,
    fenceCollection: null,
    ignoreClockSkew: null,
  } satisfies Record<keyof FirestoreBackendOptions, null>,
};

describe("null counts as not given", () => {
  test.each<[string, (options: unknown) => { capabilities: object }]>([
    ["sqlite", (options) => createSqliteBackend(":memory:", options as never)],
    ["redis", (options) => createRedisBackend("redis://localhost", options as never)],
    ["postgres", (options) => createPostgresBackend("postgres://localhost", options as never)],
    ["firestore", (options) => createFirestoreBackend({ projectId: "p" }, options as never)],
  ])("by %s", (name, create) => {
    for (const options of [null, NULLS[name as keyof typeof NULLS]]) {
      expect(create(options).capabilities).toHaveProperty("backend", name);
    }
  });

  test("of the path of a database", async () => {
    const backend = createSqliteBackend(NULLS.sqlite as never);
    expect((await backend.acquire({ key: "k", ttlMs: 5_000 })).ok).toBe(true);
  });

  test("of connections", () => {
    const names = ["host", "port", "password", "url"];
    const nulls = Object.fromEntries(names.map((name) => [name, null])) as never;
    expect(createRedisBackend(nulls).capabilities.backend).toBe("redis");
    expect(createPostgresBackend(nulls).capabilities.backend).toBe("postgres");
    const project = { projectId: "p", host: null, credentials: null } as never;
    expect(createFirestoreBackend(project).capabilities.backend).toBe("firestore");
  });
});

describe("an option that does not exist is refused with the one that was meant", () => {
  test.each<[string, () => unknown, string]>([
    [
      "sqlite",
      () => createSqliteBackend(":memory:", { operationTimeout: 5 } as never),
      "operationTimeout is not a SQLite backend option: did you mean operationTimeoutMs?",
    ],
    [
      "sqlite",
      () => createSqliteBackend({ Path: "x" } as never),
      "Path is not a SQLite backend option: did you mean path?",
    ],
    [
      "firestore",
      () => createFirestoreBackend({ projectId: "p" }, { collections: "c" } as never),
      "collections is not a Firestore backend option: did you mean collection?",
    ],
    [
      "firestore",
      () => createFirestoreBackend({ projectID: "p" } as never),
      "projectID is not a connection option: did you mean projectId?",
    ],
    [
      "firestore",
      () => createFirestoreBackend({ database: "d" } as never),
      "database is not a connection option: did you mean databaseId?",
    ],
  ])("by %s: %o", (_, create, message) => {
    expect(thrownLockError(create)).toMatchObject({ code: "InvalidArgument", message });
  });
});

test.each<[string, (given: never) => unknown]>([
  ["client must be a Redis client with eval(), a URL or connection options", createRedisBackend],
  [
    "sql must be a postgres.js or pg client, a postgres:// URL or connection options",
    createPostgresBackend,
  ],
])("%s, and a variable that is not set is named as that", (rule, create) => {
  const message = (given: unknown) => thrownLockError(() => create(given as never)).message;
  expect(message(undefined)).toBe(`${rule}; it is undefined: is its variable set?`);
  expect(message("")).toBe(`${rule}; it is empty: is its variable set?`);
  expect(message(5)).toBe(rule);
});
