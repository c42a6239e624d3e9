import { Redis } from "ioredis";
import { createClient } from "redis";
import { createClient as createClient4 } from "redis-4";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { createLock, createRedisBackend, type RedisConnectionOptions } from "syncguard/redis";
import { lockError, thrownLockError } from "../support/errors";
import { isFromTheClock } from "../support/fences";
import { type RedisServer, startRedis } from "../support/redis";
import { newKey, take } from "../support/suite";
import { until } from "../support/until";

let server: RedisServer;
beforeAll(async () => {
  server = await startRedis();
});
afterAll(async () => {
  await server.stop();
});

/** The connections to the server, but for the one that asks. */
async function connections(): Promise<string[]> {
  const list = (await server.admin.client("LIST")) as string;
  return list
    .trim()
    .split("\n")
    .filter((line) => !line.includes("cmd=client"));
}

describe("createRedisBackend", () => {
  const refused = (client: unknown, options?: unknown): string => {
    const error = thrownLockError(() => createRedisBackend(client as string, options as object));
    expect(error.code).toBe("InvalidArgument");
    return error.message;
  };

  test.each([undefined, null, 0, true, "", [], () => undefined, Symbol("s")])(
    "refuses what is no client: %s",
    (client) => {
      expect(refused(client)).toMatch(/^client must be /);
    },
  );

  const BAD_OPTIONS: readonly (readonly [string, readonly unknown[]])[] = [
    ["options", [1, "x", []]],
    ["keyPrefix", [1, "a:fence", "fence:x", "p".repeat(1_000)]],
    ["replicas", ["1", -1, 0.5, Number.NaN, 1_001]],
    ["fenceTtlMs", ["1h", 0, 3_599_999, Number.NaN, 1e15]],
    ["cleanupInIsLocked", ["yes", 1]],
    ["operationTimeoutMs", [0, -1, "5", Number.NaN, Infinity, 2 ** 31]],
    ["connectTimeoutMs", [0, -1, "5", Number.NaN, Infinity, 2 ** 31]],
    ["disposeTimeoutMs", [0, -1, "5", Number.NaN]],
    ["onReleaseError", [1, "x", {}]],
    ["transport", ["http", 1]],
  ];
  test.each(BAD_OPTIONS)("refuses a wrong %s, on every transport", (name, values) => {
    for (const value of values) {
      for (const client of ["redis://h", { host: "h" }, { eval: vi.fn() }]) {
        const options = name === "options" ? value : { [name]: value };
        // Not what the prefix alone makes too long.
        expect(refused(client, options).toLowerCase()).toMatch(
          name === "keyPrefix" ? /prefix/ : new RegExp(`^${name}`.toLowerCase()),
        );
      }
    }
  });

  const BAD_CONNECTIONS: readonly (readonly [string, readonly unknown[]])[] = [
    ["host", ["", 1]],
    ["port", [0, 65_536, 1.5, "6379", Number.NaN]],
    ["path", ["", 1]],
    ["db", [-1, 256, 1.5, "0"]],
    ["username", [1]],
    ["password", [1, {}]],
    ["tls", ["yes", 1]],
    ["tls.ca", [{ ca: "no PEM" }, { ca: 1 }]],
    ["tls.key", [{ cert: "c", key: 1 }]],
    ["tls.servername", [{ servername: "" }, { servername: "a b" }]],
    ["tls.checkServerIdentity", [{ checkServerIdentity: () => undefined }]],
    ["sentinels", ["h", [], [1], [{ host: 1 }]]],
    ["nodes", ["h", [], {}, [1], [null], [[]], [{ host: 1 }], [""], ["h:x"], ["unix:///s"], [{ host: "h", port: 0 }], ["a", "u:p@b"]]], // prettier-ignore
    ["natMap", [1, [], {}, () => ({}), { h: 1 }, { "h:1": "g:2" }, { "h:1": { host: "g" } }]],
    ["connectionName", ["a b", 1]],
    ["keyPrefix", ["app"]],
    ["retryStrategy", [() => 1]],
  ];
  test.each([
    [
      () => createRedisBackend("redis://h", { keyPrefx: "a" } as never),
      "keyPrefx is not a Redis backend option: did you mean keyPrefix?",
    ],
    [
      () => createRedisBackend({ eval: vi.fn() }, { operationTimeout: 5 } as never),
      "operationTimeout is not a Redis backend option: did you mean operationTimeoutMs?",
    ],
    [
      () => createRedisBackend({ hots: "h" } as never),
      "hots is not a Redis connection option: did you mean host?",
    ],
    [
      () => createRedisBackend({ sentinels: [{ host: "h", prot: 1 }], name: "m" } as never),
      "prot is not a part of sentinels: did you mean port?",
    ],
    [
      () => createRedisBackend({ nodes: [{ host: "h", prot: 1 }] } as never),
      "prot is not a part of nodes: did you mean port?",
    ],
    [
      () => createRedisBackend({ node: ["h"] } as never),
      "node is not a Redis connection option: did you mean nodes?",
    ],
    ...[
      ["connectTimeout", "connectTimeoutMs of the backend's options"],
      ["connectTimeoutMs", "connectTimeoutMs of the backend's options"],
      ["commandTimeout", "operationTimeoutMs of the backend's options"],
      ["connectionString", "url"],
      ["user", "username"],
      ["pass", "password"],
      ["ssl", "tls"],
    ].map(([theirs = "", ours]): [() => unknown, string] => [
      () => createRedisBackend({ [theirs]: 1 }),
      `${theirs} is not a Redis connection option: did you mean ${ours}?`,
    ]),
    [
      () => createRedisBackend({ host: "h", family: 0 } as never),
      "family is not a Redis connection option: leave it out, addresses of IPv4 and IPv6 are both tried",
    ],
    [
      () => createRedisBackend("redis://h?keyPrefx=a"),
      "the url's query holds an unknown parameter: did you mean keyPrefix?",
    ],
  ])("refuses what it does not know: %#", (create, message) => {
    const error = thrownLockError(create);
    expect(error.code).toBe("InvalidArgument");
    expect(error.message).toBe(message);
  });

  test.each(BAD_CONNECTIONS)("refuses a wrong connection option %s", (name, values) => {
    const field = name.split(".")[0] as string;
    for (const value of values) expect(refused({ [field]: value })).toContain(name);
  });

  const BAD_CLUSTERS: readonly (readonly [string, RedisConnectionOptions])[] = [
    ["nodes cannot be given together with url", { nodes: ["a"], url: "redis://h" }],
    ["nodes cannot be given together with url", { nodes: ["a"], url: "redis+cluster://h" }],
    ["sentinels", { nodes: ["a"], sentinels: [{ host: "h" }], name: "m" }],
    ["host", { nodes: ["a"], host: "h" }],
    ["port", { url: "redis+cluster://h", port: 1 }],
    ["path", { nodes: ["a"], path: "/s" }],
    ["db must be 0", { nodes: ["a"], db: 1 }],
    ["db must be 0", { nodes: ["redis://a/1"] }],
    ["db must be 0", { url: "redis+cluster://a/1" }],
    [
      "natMap must have names like host:port",
      { nodes: ["a"], natMap: { h: { host: "g", port: 1 } } },
    ],
    ["natMap.port", { nodes: ["a"], natMap: { "h:1": { host: "g", port: 0 } } }],
    ["natMap is for a redis cluster", { natMap: { "h:1": { host: "g", port: 1 } } }],
  ];
  test.each(BAD_CLUSTERS)("refuses what does not go together: %s", (start, connection) => {
    expect(refused(connection).startsWith(start)).toBe(true);
  });

  test("says that a function cannot be the natMap", () => {
    expect(refused({ nodes: ["a"], natMap: () => null })).toMatch(/; a function cannot be called$/);
  });

  test.each([
    "localhost:6379",
    "http://u:secret@h",
    "redis://u:secret@h:port",
    "redis://u:secret@h/db",
    "redis://u:secret@h?secret=1",
    "redis+sentinel://u:secret@h",
    "redis+cluster://u:secret@h:x",
    "redis+cluster://u:secret@",
    "redis+cluster://u:secret@h/1",
    "rediss+cluster://u:secret@h?natMap=1",
    "unix://secret",
  ])("refuses a URL that makes no sense and does not show it: %s", (url) => {
    expect(refused(url)).not.toContain("secret");
    expect(refused({ url })).not.toContain("secret");
  });

  test('refuses transport "client" without a client', () => {
    expect(refused("redis://h", { transport: "client" })).toContain("eval");
    expect(refused({ host: "h" }, { transport: "client" })).toContain("eval");
  });

  test("says what it can do, and does not connect", async () => {
    const before = (await connections()).length;
    const { capabilities } = createRedisBackend(server.url);
    expect(capabilities).toEqual({
      backend: "redis",
      supportsFencing: true,
      timeAuthority: "server",
    });
    expect(await connections()).toHaveLength(before);
  });
});

describe("a connection", () => {
  const WAYS: readonly (readonly [string, () => string | RedisConnectionOptions])[] = [
    ["a URL", () => `${server.url}/2?connectionName=locks`],
    ["the URL of a socket", () => `unix://${server.folder}/redis.sock?db=2&connectionName=locks`],
    ["options", () => ({ host: "127.0.0.1", port: server.port, db: 2, connectionName: "locks" })],
    ["a path", () => ({ path: `${server.folder}/redis.sock`, db: 2, connectionName: "locks" })],
    ["a URL and options", () => ({ url: `${server.url}/1`, db: 2, connectionName: "locks" })],
  ];
  test.each(WAYS)("from %s", async (_, where) => {
    const key = newKey();
    const backend = createRedisBackend(where(), { keyPrefix: "app" });
    onTestFinished(backend.close);
    await take(backend, key);
    const mine = (await connections()).filter((line) => line.includes("name=locks"));
    expect(mine).toHaveLength(1);
    expect(mine[0]).toContain(" db=2 ");
    const reader = new Redis(server.port, { db: 2 });
    expect(await reader.exists(`app:${key}`)).toBe(1);
    reader.disconnect();
  });

  test("is shared by backends on one client with the same settings", async () => {
    const client = new Redis(server.port, { lazyConnect: true, connectionName: "shared" });
    const count = async (): Promise<number> =>
      (await connections()).filter((line) => line.includes("name=shared")).length;
    const key = newKey();
    const first = createRedisBackend(client);
    const second = createRedisBackend(client, { keyPrefix: "other" });
    await take(first, key);
    await take(second, key);
    expect(await count()).toBe(1);

    // The last one ends it.
    await first.close();
    expect(await second.isLocked({ key })).toBe(true);
    expect((await lockError(first.isLocked({ key }))).code).toBe("Aborted");
    await second.close();
    await until(async () => (await count()) === 0);

    // A new one starts anew.
    const third = createRedisBackend(client);
    expect(await third.isLocked({ key })).toBe(true);
    const impatient = createRedisBackend(client, { operationTimeoutMs: 100 });
    expect(await impatient.isLocked({ key })).toBe(true);
    expect(await count()).toBe(2);
    await Promise.all([third.close(), impatient.close()]);
  });

  test("ends with close() and with `await using`, however often", async () => {
    const name = "ending";
    const count = async (): Promise<number> =>
      (await connections()).filter((line) => line.includes(`name=${name}`)).length;
    {
      await using backend = createRedisBackend({ url: server.url, connectionName: name });
      await backend.isLocked({ key: "k" });
      expect(await count()).toBe(1);
    }
    await until(async () => (await count()) === 0);
    const backend = createRedisBackend({ url: server.url, connectionName: name });
    const pending = backend.isLocked({ key: "k" });
    await Promise.all([backend.close(), backend.close()]);
    await backend.close();
    // What was asked before was answered.
    expect(await pending).toBe(false);
    expect((await lockError(backend.isLocked({ key: "k" }))).message).toBe("the backend is closed");
  });
});

test("a node of a cluster refuses keys in several slots, and serves those of one hash tag", async () => {
  const node = await startRedis({ lines: ["cluster-enabled yes"] });
  onTestFinished(node.stop);
  await node.admin.call("CLUSTER", "ADDSLOTSRANGE", "0", "16383");
  await until(async () =>
    ((await node.admin.call("CLUSTER", "INFO")) as string).includes("cluster_state:ok"),
  );
  const scattered = createRedisBackend(node.url);
  onTestFinished(scattered.close);
  const error = await lockError(scattered.acquire({ key: newKey(), ttlMs: 5_000 }));
  expect(error.code).toBe("InvalidArgument");
  expect(error.message).toContain("use redis+cluster:// instead of redis://");
  const tagged = createRedisBackend(node.url, { keyPrefix: "{locks}" });
  onTestFinished(tagged.close);
  const held = await take(tagged, newKey());
  expect(await held.extend(5_000)).toMatchObject({ ok: true });
  expect(await held.release()).toEqual({ ok: true });
});

describe("clients", () => {
  test.each([
    ["4", createClient4 as unknown as typeof createClient],
    ["5", createClient],
  ])("node-redis %s, on either transport, see the same locks", async (_, create) => {
    const client = create({ url: `${server.url}/1` });
    await client.connect();
    onTestFinished(async () => {
      await client.quit();
    });
    const driven = createRedisBackend(client, { transport: "client" });
    const native = createRedisBackend(client, { transport: "native" });
    onTestFinished(native.close);
    for (const [mine, other] of [
      [driven, native],
      [native, driven],
    ] as const) {
      const key = newKey();
      const held = await take(mine, key);
      expect(await other.isLocked({ key })).toBe(true);
      expect(await other.lookup({ lockId: held.lockId })).toEqual(await mine.lookup({ key }));
      expect(await other.extend({ lockId: held.lockId, ttlMs: 9_000 })).toMatchObject({ ok: true });
      expect(await other.release({ lockId: held.lockId })).toEqual({ ok: true });
      expect((await take(mine, key)).fence > held.fence).toBe(true);
    }
  });

  test("a client's own keyPrefix stands before every key, on either transport", async () => {
    const client = new Redis(server.port, { keyPrefix: "tenant:" });
    onTestFinished(() => {
      client.disconnect();
    });
    const driven = createRedisBackend(client, { transport: "client", cleanupInIsLocked: true });
    const native = createRedisBackend(client, { cleanupInIsLocked: true });
    onTestFinished(native.close);
    const direct = createRedisBackend({ url: server.url, clientKeyPrefix: "tenant:" });
    onTestFinished(direct.close);
    const key = newKey();
    const { lockId, fence } = await take(driven, key);
    expect(await server.admin.exists(`tenant:syncguard:${key}`)).toBe(1);
    expect(await server.admin.exists(`tenant:syncguard:id:${lockId}`)).toBe(1);
    expect(await native.isLocked({ key })).toBe(true);
    expect(await direct.extend({ lockId, ttlMs: 5_000 })).toMatchObject({ ok: true });
    expect(await native.release({ lockId })).toEqual({ ok: true });
    expect(await server.admin.exists(`tenant:syncguard:${key}`)).toBe(0);
    const again = await take(native, key);
    expect(again.fence > fence).toBe(true);
    expect(await server.admin.get(`tenant:syncguard:fence:syncguard:${key}`)).toBe(
      String(Number(again.fence)),
    );
    expect(await driven.release({ lockId: again.lockId })).toEqual({ ok: true });
  });

  test.each(["native", "client"] as const)(
    "%s: keys with the names of counters and index entries are refused",
    async (transport) => {
      const client = new Redis(server.port);
      onTestFinished(() => {
        client.disconnect();
      });
      const backend = createRedisBackend(client, { transport });
      onTestFinished(backend.close);
      const key = newKey();
      for (const reserved of [`fence:syncguard:${key}`, `id:${"A".repeat(22)}`]) {
        for (const refused of [
          backend.acquire({ key: reserved, ttlMs: 5_000 }),
          backend.lock(reserved),
          backend.isLocked({ key: reserved }),
          backend.lookup({ key: reserved }),
          backend.forceRelease(reserved),
        ]) {
          const error = await lockError(refused);
          expect(error.code).toBe("InvalidArgument");
          expect(error.message).toContain("Key is reserved");
          expect(error.message).not.toContain(reserved);
        }
      }
      await take(backend, key);
    },
  );

  test("ioredis-mock runs the scripts", async () => {
    const { default: RedisMock } = await import("ioredis-mock");
    const backend = createRedisBackend(new RedisMock());
    const key = newKey();
    const held = await take(backend, key);
    // By the mock's clock, which rounds seconds, and adds the fraction of another clock.
    expect(Math.abs(Date.now() - Number(held.fence))).toBeLessThan(60_000);
    expect(await backend.acquire({ key, ttlMs: 5_000 })).toMatchObject({ ok: false });
    expect(await backend.lookup({ key })).toMatchObject({ fence: held.fence });
    expect(await held.extend(5_000)).toMatchObject({ ok: true });
    expect(await held.release()).toEqual({ ok: true });
    expect(await backend.isLocked({ key })).toBe(false);
  });

  test("ioredis-mock refuses what it cannot run, and says what can", async () => {
    const { default: RedisMock } = await import("ioredis-mock");
    const backend = createRedisBackend(new RedisMock());
    const [one, two] = [newKey(), newKey()];
    for (const ask of [
      () => backend.lock([one, two]),
      () => backend.acquire({ claims: [one, two], ttlMs: 5_000 }),
      () => backend.lock({ key: one, slots: 2 }),
      () => backend.once(one, { due: 1 }, () => 1),
    ]) {
      const error = await lockError(ask());
      expect(error.code).toBe("InvalidArgument");
      expect(error.message).toContain(
        "ioredis-mock cannot run this script: several keys at once, slots and once() need a server, or createTestBackend() of syncguard/testing",
      );
      expect(error.message).not.toContain(one);
    }
  });

  test("createLock", async () => {
    const lock = createLock(server.url, { keyPrefix: "bound" });
    const key = newKey();
    const fence = await lock(
      async (handle) => {
        expect(await server.admin.exists(`bound:${key}`)).toBe(1);
        return handle.fence;
      },
      { key },
    );
    expect(fence).toSatisfy(isFromTheClock);
    expect(await server.admin.exists(`bound:${key}`)).toBe(0);
  });
});
