/** What is read from clusters of ioredis and node-redis. No client connects. */

import { lookup } from "node:dns";
import { createRequire } from "node:module";
import { Cluster, type ClusterNode, type ClusterOptions } from "ioredis";
import { createCluster, type RedisClusterOptions } from "redis";
import { createCluster as createCluster4 } from "redis-4";
import { afterEach, describe, expect, test, vi } from "vitest";
import { createRedisBackend } from "syncguard/redis";
import { thrownLockError } from "../support/errors";

type Reading = { settings: Record<string, unknown> } | { obstacle: string };

const { readClient } = createRequire(import.meta.url)("../../dist/redis/client-settings.js") as {
  readClient: (client: object) => Reading;
};

const AT = { host: "h", port: 1 };
const nodes = [AT];

afterEach(() => {
  vi.restoreAllMocks();
});

describe("ioredis", () => {
  const make = (startup: readonly unknown[], options: Record<string, unknown> = {}): Cluster =>
    new Cluster(startup as ClusterNode[], { ...(options as ClusterOptions), lazyConnect: true });

  const CARRIED: readonly (readonly [readonly unknown[], Record<string, unknown>, object])[] = [
    [[AT], {}, { nodes }],
    [[{ host: "h", port: "1", db: 3 }], {}, { nodes }],
    [
      [{}, 7000, "7001", "g", "g:2", "redis://[::1]:3/0"],
      {},
      {
        nodes: [
          { host: "127.0.0.1" },
          { host: "127.0.0.1", port: 7000 },
          { host: "127.0.0.1", port: 7001 },
          { host: "g" },
          { host: "g", port: 2 },
          { host: "::1", port: 3 },
        ],
      },
    ],
    [
      [AT],
      {
        redisOptions: { username: "u", password: "p", connectionName: "c", commandTimeout: 7 },
        maxRedirections: 3,
        scaleReads: "all",
      },
      { nodes, username: "u", password: "p", connectionName: "c", operationTimeoutMs: 7 },
    ],
    // What one node has applies to it alone, unless all have it.
    [
      [{ ...AT, password: "p" }, "redis://:p@g:2"],
      { redisOptions: { password: "p" } },
      { nodes: [AT, { host: "g", port: 2 }], password: "p" },
    ],
    [[AT], { redisOptions: { tls: { servername: "s" } } }, { nodes, tls: { servername: "s" } }],
    [[AT], { keyPrefix: "app:" }, { nodes, clientKeyPrefix: "app:" }],
    [[AT], { redisOptions: { keyPrefix: "app:" } }, { nodes, clientKeyPrefix: "app:" }],
    [[AT], { dnsLookup: lookup }, { nodes }],
    [[AT], { natMap: { "h:1": { host: "g", port: 2 } } }, { nodes, natMap: { "h:1": { host: "g", port: 2 } } }], // prettier-ignore
  ];
  test.each(CARRIED)("carried over: %o %o", (startup, options, settings) => {
    const client = make(startup, options);
    expect(readClient(client)).toEqual({ settings });
    createRedisBackend(client, { transport: "native" });
  });

  const NOT_CARRIED: readonly (readonly [string, readonly unknown[], Record<string, unknown>])[] = [
    ["startupNodes", [], {}],
    ["startupNodes", ["/run/redis.sock"], {}],
    ["startupNodes", ["redis://h/1"], {}],
    ["startupNodes that differ in more than host and port", [{ ...AT, password: "p" }], {}],
    ["startupNodes that differ in more than host and port", [AT, "redis://:p@h"], {}],
    ["startupNodes that differ in more than host and port", [{ ...AT, tls: {} }], {}],
    ["useSRVRecords", [AT], { useSRVRecords: true }],
    ["dnsLookup", [AT], { dnsLookup: (name: string, found: (...args: unknown[]) => void) => { found(null, name); } }], // prettier-ignore
    ["natMap", [AT], { natMap: () => null }],
    ["natMap", [AT], { natMap: { "h:1": { host: "g", port: 2, tls: {} } } }],
    ["path", [AT], { redisOptions: { path: "/x" } }],
    ["db", [AT], { redisOptions: { db: 1 } }],
    ["password", [AT], { redisOptions: { password: () => "p" } }],
    ["tls.checkServerIdentity", [AT], { redisOptions: { tls: { checkServerIdentity: () => undefined } } }], // prettier-ignore
    ["the Connector", [AT], { redisOptions: { Connector: vi.fn() } }],
  ];
  test.each(NOT_CARRIED)("not carried over: %s", (obstacle, startup, options) => {
    const client = make(startup, options);
    expect(readClient(client)).toEqual({ obstacle });
    createRedisBackend(client);
    const error = thrownLockError(() => createRedisBackend(client, { transport: "native" }));
    expect(error.code).toBe("InvalidArgument");
    expect(error.message).toContain(`cannot take over ${obstacle} of the client`);
  });

  test("with a prefix that is no text, it is refused: nobody knows the slots", () => {
    const client = make([AT], { keyPrefix: Buffer.from("x") });
    const error = thrownLockError(() => createRedisBackend(client));
    expect(error.message).toBe("the client's keyPrefix must be a string in a redis cluster");
  });

  test.each(["eval", "sendCommand"] as const)("driven itself when its %s is replaced", (name) => {
    const client = make([AT]);
    Object.assign(client, { [name]: vi.fn().mockResolvedValue(0) });
    expect(readClient(client)).toEqual({ obstacle: `${name}, which is not its class's,` });
    class Sub extends Cluster {}
    Object.assign(Sub.prototype, { [name]: vi.fn() });
    const sub = new Sub([AT], { lazyConnect: true });
    expect(readClient(sub)).toEqual({ obstacle: `${name}, which is not its class's,` });
  });
});

describe("node-redis 5", () => {
  const read = (options: Record<string, unknown>): Reading =>
    readClient(createCluster(options as unknown as RedisClusterOptions));
  const root = { url: "redis://h:1" };

  const CARRIED: readonly (readonly [Record<string, unknown>, object])[] = [
    [{ rootNodes: [root, { socket: AT }, {}] }, { nodes: [AT, AT, { host: "localhost" }] }],
    [
      {
        rootNodes: [root, { url: "redis://u:p%40@[::1]:2/0" }],
        defaults: { username: "u", password: "p@", name: "c", socket: { connectTimeout: 9 } },
        commandOptions: { timeout: 8 },
        useReplicas: true,
      },
      {
        nodes: [AT, { host: "::1", port: 2 }],
        username: "u",
        password: "p@",
        connectionName: "c",
        connectTimeoutMs: 9,
        operationTimeoutMs: 8,
      },
    ],
    [
      { rootNodes: [{ url: "rediss://h:1" }], defaults: { socket: { tls: true, ca: "CA" } } },
      { nodes, tls: { ca: "CA" } },
    ],
    [
      { rootNodes: [root], nodeAddressMap: { "h:1": { host: "g", port: 2 } } },
      { nodes, natMap: { "h:1": { host: "g", port: 2 } } },
    ],
  ];
  test.each(CARRIED)("carried over: %o", (options, settings) => {
    expect(read(options)).toEqual({ settings });
  });

  const DIFFERENT = "rootNodes that differ in more than host and port";
  const NOT_CARRIED: readonly (readonly [string, Record<string, unknown>])[] = [
    ["rootNodes", { rootNodes: [] }],
    ["rootNodes", { rootNodes: [{ url: "redis://h/1" }] }],
    // The nodes that it finds would be asked without a login, and without TLS.
    [DIFFERENT, { rootNodes: [{ url: "redis://u:p@h" }] }],
    [DIFFERENT, { rootNodes: [{ url: "rediss://h" }] }],
    ["defaults.url", { rootNodes: [root], defaults: { url: "redis://h" } }],
    ["nodeAddressMap", { rootNodes: [root], nodeAddressMap: () => AT }],
    ["path", { rootNodes: [root], defaults: { socket: { path: "/x" } } }],
    ["credentialsProvider", { rootNodes: [root], defaults: { credentialsProvider: {} } }],
    ["socket.lookup", { rootNodes: [root], defaults: { socket: { lookup: () => undefined } } }],
  ];
  test.each(NOT_CARRIED)("not carried over: %s", (obstacle, options) => {
    expect(read(options)).toEqual({ obstacle });
  });

  test.each(["eval", "_execute"])("driven itself when its %s is replaced", (name) => {
    const client = createCluster({ rootNodes: [root] });
    Object.assign(client, { [name]: vi.fn().mockResolvedValue(0) });
    expect(readClient(client)).toEqual({ obstacle: `${name}, which is not its class's,` });
  });
});

test("of node-redis 4, which hides its settings, nothing is read", () => {
  const client = createCluster4({ rootNodes: [{ url: "redis://h" }] });
  expect(readClient(client)).toEqual({ obstacle: "the settings, which cannot be read," });
  createRedisBackend(client);
});

test("a mock of a cluster is driven, with the keys of a cluster", async () => {
  const run = vi.fn((..._call: unknown[]) => Promise.resolve<unknown>([1, 7, 1_700_000_000_000]));
  const backend = createRedisBackend({ isCluster: true, eval: run } as { eval: typeof run });
  expect(await backend.acquire({ key: "job", ttlMs: 5_000 })).toMatchObject({ ok: true });
  const [, count, lockKey, indexKey, fenceKey] = run.mock.calls[0] as string[];
  expect(count).toBe(3);
  const [tag] = lockKey!.split(":job");
  expect(tag).toMatch(/^\{syncguard:[0-9a-f]{2}\}$/);
  expect(indexKey!.startsWith(`${tag}:id:`)).toBe(true);
  expect(fenceKey).toBe(`${tag}:fence:${lockKey}`);
});

test.each([
  ["ioredis", () => new Cluster([AT], { lazyConnect: true })],
  ["node-redis", () => createCluster({ rootNodes: [{ url: "redis://h:1" }] })],
] as const)("driven, because a Proxy may change what it does: %s", (_, create) => {
  const client = new Proxy(create(), {}) as Cluster;
  expect(createRedisBackend(client).transport?.way).toBe("client");
  const error = thrownLockError(() => createRedisBackend(client, { transport: "native" }));
  expect(error.message).toContain("which go through a Proxy");
});

test("a login that is changed is read anew", () => {
  const client = new Cluster([AT], { lazyConnect: true, redisOptions: { password: "before" } });
  expect(readClient(client)).toMatchObject({ settings: { password: "before" } });
  (client as unknown as { options: { redisOptions: object } }).options.redisOptions = {
    password: "after",
  };
  expect(readClient(client)).toMatchObject({ settings: { password: "after" } });
});
