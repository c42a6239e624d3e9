/** Whatever settings are given: a backend, or a LockError `InvalidArgument` that shows nothing private. */

import { inspect } from "node:util";
import { Firestore } from "@google-cloud/firestore";
import * as fc from "fast-check";
import { Cluster, Redis } from "ioredis";
import { Client, Pool } from "pg";
import postgres from "postgres";
import { createClient, createCluster } from "redis";
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { lock, LockError } from "syncguard";
import { createFirestoreBackend } from "syncguard/firestore";
import { createPostgresBackend } from "syncguard/postgres";
import { createRedisBackend } from "syncguard/redis";
import { createSqliteBackend } from "syncguard/sqlite";
import { lockError } from "../support/errors";
import { temporaryFolder } from "../support/temp";

/** So long and without sense that a text which contains it has it from the settings. */
const SECRET = "hW3nY6uQ0sA5eF1k";
const RUNS = { numRuns: 120 };

beforeEach(() => {
  // Warnings are about settings too, and nobody reads them here.
  vi.spyOn(process, "emitWarning").mockImplementation(() => undefined);
});
afterEach(() => {
  vi.unstubAllEnvs();
});

function expectDiscreet(error: Error): void {
  const { message, stack, cause } = error;
  expect(`${message} ${stack} ${inspect(cause, { depth: 10 })}`).not.toContain(SECRET);
}

/** Fails if `create` throws anything but an InvalidArgument without secrets. */
function tryOut(create: () => unknown): void {
  try {
    create();
  } catch (error) {
    if (!(error instanceof LockError)) throw error;
    expectDiscreet(error);
    expect(error.code).toBe("InvalidArgument");
  }
}

/** Text with something private in it, and what has a meaning in URLs and names. */
const text = fc
  .array(
    fc.oneof(
      fc.constant(SECRET),
      fc.string({ unit: "binary", maxLength: 4 }),
      fc.constantFrom(
        ...["://", ":", "@", ",", "?", "&", "=", "#", "[::1]", "%", "%zz", "%00", "\0", "{", "}"],
        ...["db=1", "sslmode=", "host=", "127.0.0.1", "localhost:6379", "99999", "-1", " "],
      ),
    ),
    { maxLength: 6 },
  )
  .map((pieces) => pieces.join(""));

/** Any value of JavaScript. */
const anything = fc.oneof(
  text,
  fc.double(),
  fc.constantFrom(...[0, -1, 1, 6379, 1e15, -0, true, false, null, undefined]),
  fc.func(text),
  fc.constant(Symbol(SECRET)),
  fc.anything({
    key: fc.constantFrom("host", "port", "0", "then", "toString"),
    values: [text, fc.double(), fc.boolean()],
    maxDepth: 2,
    withBigInt: true,
    withDate: true,
    withMap: true,
    withNullPrototype: true,
    withTypedArray: true,
  }),
);

/** Some of these settings, with any values. */
function some(names: readonly string[]): fc.Arbitrary<Record<string, unknown>> {
  return fc
    .uniqueArray(fc.tuple(fc.constantFrom(...names), anything), {
      selector: ([name]) => name,
      maxLength: 3,
    })
    .map((settings) => Object.fromEntries(settings));
}

function url(...schemes: string[]): fc.Arbitrary<string> {
  return fc.tuple(fc.constantFrom(...schemes, ""), text).map((parts) => parts.join(""));
}

const REDIS_URL = url(
  ...["redis://", "rediss://", "redis+sentinel://", "redis+cluster://", "unix://", "redis:"],
  ...["valkey://", "valkeys://", "valkeys+cluster://"],
);
const POSTGRES_URL = url("postgres://", "postgresql://", "postgres:", "host=");

const COMMON = ["onReleaseError", "disposeTimeoutMs", "cleanupInIsLocked", "operationTimeoutMs"];
const SERVER = [...COMMON, "connectTimeoutMs", "transport"];
const TLS = ["tls", "ca", "cert", "key", "servername", "rejectUnauthorized"];

describe("settings of any kind are taken or refused", () => {
  test("SYNCGUARD_URL", async () => {
    const folder = temporaryFolder();
    onTestFinished(folder.remove);
    // A file is made wherever the path leads.
    const files = text.map((rest) => `sqlite:${folder.path}/f${rest.replaceAll("/", "")}`);
    const urls = fc.oneof(
      REDIS_URL,
      POSTGRES_URL,
      url("firestore://", "firestore:"),
      files,
      text.filter((one) => !/^sqlite:/i.test(one)),
    );
    await fc.assert(
      fc.asyncProperty(urls, async (value) => {
        // An environment variable ends there.
        vi.stubEnv("SYNCGUARD_URL", value.replaceAll("\0", ""));
        // The backend is made first. That there is no key comes out before anything is sent.
        const error = await lockError(lock(() => undefined, { key: "" }));
        expectDiscreet(error);
        expect(error.code).toBe("InvalidArgument");
        expect(error.message).toMatch(/SYNCGUARD_URL|key/i);
      }),
      RUNS,
    );
  });

  const creates: [string, readonly string[], readonly string[], (...args: never[]) => unknown][] = [
    [
      "Redis",
      ["url", "host", "port", "path", "username", "password", "db", "nodes", "sentinels", ...TLS],
      ["keyPrefix", "replicas", "fenceTtlMs", ...SERVER],
      createRedisBackend,
    ],
    [
      "PostgreSQL",
      ["url", "host", "port", "user", "password", "database", "ssl", "connection", ...TLS],
      ["tableName", "fenceTableName", "poolSize", "prepare", "durableReleases", ...SERVER],
      createPostgresBackend,
    ],
    [
      "Firestore",
      ["projectId", "databaseId", "host", "credentials", "keyFilename", "emulatorHost"],
      ["collection", "fenceCollection", ...SERVER],
      createFirestoreBackend,
    ],
  ];
  test.each(creates)("connection options of %s", (_, connection, options, create) => {
    const first = fc.oneof(anything, some(connection), REDIS_URL, POSTGRES_URL);
    const second = fc.oneof({ weight: 5, arbitrary: some(options) }, anything);
    const property = fc.property(first, second, (at, given) => {
      tryOut(() => create(at as never, given as never));
    });
    fc.assert(property, RUNS);
  });

  test("options of SQLite", () => {
    const property = fc.property(some([...COMMON, "allowNetworkFileSystem"]), (options) => {
      tryOut(() => createSqliteBackend(":memory:", options as never));
    });
    fc.assert(property, RUNS);
  });
});

describe("settings of clients are taken, refused, or left to the client", () => {
  const check = (
    names: readonly string[],
    create: (settings: Record<string, unknown>, options: never) => void,
  ): void => {
    const property = fc.property(some(names), some(["transport"]), (settings, options) => {
      create(settings, options as never);
    });
    fc.assert(property, RUNS);
  };

  test("ioredis", () => {
    const names = [
      ...["host", "port", "path", "username", "password", "db", "tls", "keyPrefix", "sentinels"],
      ...["name", "role", "sentinelPassword", "sentinelTLS", "connectTimeout", "commandTimeout"],
    ];
    check(names, (settings, options) => {
      const client = new Redis({ lazyConnect: true });
      Object.assign(client.options, settings);
      tryOut(() => createRedisBackend(client, options));
    });
  });

  test("node-redis", () => {
    const names = ["url", "username", "password", "name", "database", "socket", "commandOptions"];
    const sockets = [
      ...["host", "port", "path", "tls", "connectTimeout", "socketTimeout", "servername", "ca"],
    ];
    check([...names, ...sockets], (settings, options) => {
      const client = createClient({ socket: {} });
      const { socket } = client.options;
      for (const [name, value] of Object.entries(settings)) {
        Object.assign(names.includes(name) ? client.options : (socket as object), {
          [name]: value,
        });
      }
      tryOut(() => createRedisBackend(client, options));
    });
  });

  /** What stands where the nodes of a cluster are expected. */
  const nodeNames = ["host", "port", "url", "socket", "username", "password", "tls", "db"];
  const nodes = fc.oneof(fc.array(fc.oneof(some(nodeNames), anything), { maxLength: 3 }), anything);

  test("a cluster of ioredis", () => {
    const names = ["redisOptions", "keyPrefix", "natMap", "dnsLookup", "scaleReads"];
    const property = fc.property(nodes, some(names), (startupNodes, settings) => {
      const client = new Cluster([], { lazyConnect: true });
      Object.assign(client, { startupNodes });
      Object.assign(client.options, settings);
      tryOut(() => createRedisBackend(client));
    });
    fc.assert(property, RUNS);
  });

  test("a cluster of node-redis", () => {
    const names = ["defaults", "nodeAddressMap", "commandOptions", "useReplicas"];
    const property = fc.property(nodes, some(names), (rootNodes, settings) => {
      const client = createCluster({ rootNodes: [] });
      const { _options } = client as unknown as Record<"_options", object>;
      Object.assign(_options, settings, { rootNodes });
      tryOut(() => createRedisBackend(client));
    });
    fc.assert(property, RUNS);
  });

  test("Firestore", () => {
    const names = [
      ...["projectId", "databaseId", "credentials", "keyFilename", "ssl", "servicePath", "host"],
      ...["apiEndpoint", "port", "preferRest", "customHeaders", "sslCreds", "grpc", "auth"],
    ];
    const ids = fc.constantFrom("_projectId", "_databaseId");
    const property = fc.property(some(names), ids, anything, (settings, id, value) => {
      const client = new Firestore({ projectId: "p" });
      const { _settings } = client as unknown as Record<"_settings", object>;
      Object.assign(_settings, settings);
      Object.assign(client, { [id]: value });
      tryOut(() => createFirestoreBackend(client));
    });
    fc.assert(property, RUNS);
  });

  const session = ["ssl", "statement_timeout", "application_name", "options", "query_timeout"];

  test("pg", () => {
    const names = ["host", "port", "user", "password", "database", ...session];
    check(names, (settings, options) => {
      const client = new Client();
      Object.assign(
        (client as unknown as Record<"connectionParameters", object>).connectionParameters,
        settings,
      );
      tryOut(() => createPostgresBackend(client, options));
      const pool = new Pool();
      Object.assign((pool as unknown as Record<"options", object>).options, settings);
      tryOut(() => createPostgresBackend(pool, options));
    });
  });

  test("postgres.js", () => {
    const names = [
      ...["host", "port", "path", "user", "pass", "database", "max", "connect_timeout", "ssl"],
      ...["prepare", "connection", "target_session_attrs", "socket"],
    ];
    check(names, (settings, options) => {
      const sql = postgres();
      Object.assign(sql.options, settings);
      tryOut(() => createPostgresBackend(sql, options));
    });
  });
});
