/** What is read from clients of ioredis and node-redis. No client connects. */

import { createRequire } from "node:module";
import { Redis, type RedisOptions } from "ioredis";
import { createClient, createClientPool, type RedisClientOptions } from "redis";
import { createClient as createClient4 } from "redis-4";
import { afterEach, describe, expect, test, vi } from "vitest";
import { createRedisBackend } from "syncguard/redis";
import { thrownLockError } from "../support/errors";

type Reading = { settings: Record<string, unknown> } | { obstacle: string };

const { readClient } = createRequire(import.meta.url)("../../dist/redis/client-settings.js") as {
  readClient: (client: object) => Reading;
};

/** What an ioredis client without a word of its own comes to. */
const DEFAULTS = { host: "localhost", port: 6379, db: 0, connectTimeoutMs: 10_000 };

function ioredis(options: RedisOptions & Record<string, unknown>, url?: string): Reading {
  const all = { ...options, lazyConnect: true };
  const client = url === undefined ? new Redis(all) : new Redis(url, all);
  return readClient(client);
}

describe("ioredis", () => {
  const CARRIED: readonly (readonly [RedisOptions & Record<string, unknown>, object])[] = [
    [{}, DEFAULTS],
    [
      { host: "h", port: 1, db: 3 },
      { ...DEFAULTS, host: "h", port: 1, db: 3 },
    ],
    [{ path: "/run/redis.sock" }, { ...DEFAULTS, path: "/run/redis.sock" }],
    [
      { username: "u", password: "p" },
      { ...DEFAULTS, username: "u", password: "p" },
    ],
    // Without a password ioredis does not log in.
    [{ username: "u" }, DEFAULTS],
    [{ password: "p" }, { ...DEFAULTS, password: "p" }],
    [{ family: 6 }, DEFAULTS],
    [{ keyPrefix: "app:" }, { ...DEFAULTS, clientKeyPrefix: "app:" }],
    [{ connectionName: "worker" }, { ...DEFAULTS, connectionName: "worker" }],
    [
      { connectTimeout: 700, commandTimeout: 800 },
      { ...DEFAULTS, connectTimeoutMs: 700, operationTimeoutMs: 800 },
    ],
    [
      { tls: { ca: "CA", cert: Buffer.from("CERT"), key: "KEY", servername: "s" } },
      { ...DEFAULTS, tls: { ca: "CA", cert: "CERT", key: "KEY", servername: "s" } },
    ],
    [
      { tls: { ca: ["A", Buffer.from("B")], rejectUnauthorized: false, minVersion: "TLSv1.2" } },
      { ...DEFAULTS, tls: { ca: "A\nB", rejectUnauthorized: false } },
    ],
    [{ tls: {} }, { ...DEFAULTS, tls: {} }],
    [
      {
        sentinels: [{ host: "a", port: 1 }, { host: "b" }],
        name: "main",
        sentinelUsername: "su",
        sentinelPassword: "sp",
        password: "p",
      },
      {
        sentinels: [{ host: "a", port: 1 }, { host: "b" }],
        name: "main",
        sentinelUsername: "su",
        sentinelPassword: "sp",
        password: "p",
        db: 0,
        connectTimeoutMs: 10_000,
      },
    ],
    [
      {
        sentinels: [{ host: "a" }],
        name: "main",
        enableTLSForSentinelMode: true,
        tls: { ca: "CA" },
        sentinelTLS: { ca: "CA" },
      },
      {
        sentinels: [{ host: "a" }],
        name: "main",
        tls: { ca: "CA" },
        db: 0,
        connectTimeoutMs: 10_000,
      },
    ],
    // ioredis, too, uses `tls` with Sentinels only if told to.
    [
      { sentinels: [{ host: "a" }], name: "main", tls: { ca: "CA" } },
      { sentinels: [{ host: "a" }], name: "main", db: 0, connectTimeoutMs: 10_000 },
    ],
  ];
  test.each(CARRIED)("carried over: %o", (options, settings) => {
    expect(ioredis(options)).toEqual({ settings });
  });

  test("carried over from a URL", () => {
    expect(ioredis({}, "rediss://u:p%40@h:1/3")).toEqual({
      settings: { ...DEFAULTS, host: "h", port: 1, db: 3, username: "u", password: "p@", tls: {} },
    });
    expect(ioredis({}, "/run/redis.sock")).toEqual({
      settings: { ...DEFAULTS, path: "/run/redis.sock" },
    });
  });

  const OwnConnector = class {
    connect = vi.fn();
  };
  const sentinels = [{ host: "a" }];
  const NOT_CARRIED: readonly (readonly [string, object])[] = [
    ["the Connector", { Connector: OwnConnector }],
    ["tls.checkServerIdentity", { tls: { checkServerIdentity: () => undefined } }],
    ["tls.passphrase", { tls: { key: "KEY", passphrase: "x" } }],
    ["tls.pfx", { tls: { pfx: Buffer.from("x") } }],
    ["tls.key", { tls: { key: [{ pem: "KEY", passphrase: "x" }] } }],
    ["tls.secureContext", { tls: { secureContext: {} } }],
    ["tls.ciphers", { tls: { ciphers: "x" } }],
    ["tls.minVersion", { tls: { minVersion: "TLSv1.3" } }],
    ["tls.servername", { tls: { servername: "" } }],
    ["tls.host", { tls: { host: "other" } }],
    ["tls.lookup", { tls: { lookup: () => undefined } }],
    ["tls over path", { path: "/x", tls: {} }],
    ["password", { password: () => "p" }],
    ["keyPrefix", { keyPrefix: Buffer.from("x") }],
    ["db", { db: 256 }],
    ["role", { sentinels, name: "main", role: "slave" }],
    ["natMap", { sentinels, name: "main", natMap: {} }],
    ["sentinelTLS beside another tls", { sentinels, name: "main", sentinelTLS: {} }],
    [
      "sentinelTLS beside another tls",
      { sentinels, name: "main", tls: {}, enableTLSForSentinelMode: true },
    ],
  ];
  test.each(NOT_CARRIED)("not carried over: %s", (obstacle, options) => {
    const lazy = { ...options, lazyConnect: true } as RedisOptions;
    let client: Redis;
    try {
      client = new Redis(lazy);
    } catch {
      // ioredis makes its connector at once; ours need not work.
      client = Object.assign(new Redis({ lazyConnect: true }), { options: lazy });
    }
    expect(readClient(client)).toEqual({ obstacle });
    const error = thrownLockError(() => createRedisBackend(client, { transport: "native" }));
    expect(error.code).toBe("InvalidArgument");
    expect(error.message).toContain(obstacle);
  });
});

describe.each([
  ["4", createClient4 as unknown as typeof createClient],
  ["5", createClient],
])("node-redis %s", (_, create) => {
  const read = (options?: RedisClientOptions): Reading => readClient(create(options));
  const withoutTimeout = (reading: Reading): Reading => {
    // Version 4 writes its default into the options.
    if ("settings" in reading && reading.settings.connectTimeoutMs === 5_000) {
      delete reading.settings.connectTimeoutMs;
    }
    return reading;
  };

  const CARRIED: readonly (readonly [object, object])[] = [
    [{}, {}],
    [
      { url: "rediss://u:p%40@h:1/3" },
      { host: "h", port: 1, db: 3, username: "u", password: "p@", tls: {} },
    ],
    [{ socket: { host: "h", port: 1, family: 6 } }, { host: "h", port: 1 }],
    [{ socket: { path: "/run/redis.sock" } }, { path: "/run/redis.sock" }],
    [
      { username: "u", password: "p", database: 2, name: "worker" },
      { username: "u", password: "p", db: 2, connectionName: "worker" },
    ],
    [
      { socket: { host: "h", port: 1, connectTimeout: 700 }, commandOptions: { timeout: 800 } },
      { host: "h", port: 1, connectTimeoutMs: 700, operationTimeoutMs: 800 },
    ],
    [
      {
        socket: { tls: true, host: "h", port: 1, ca: [Buffer.from("CA")], servername: "s", rejectUnauthorized: false }, // prettier-ignore
      },
      { host: "h", port: 1, tls: { ca: "CA", servername: "s", rejectUnauthorized: false } },
    ],
  ];
  test.each(CARRIED)("carried over: %o", (options, settings) => {
    expect(withoutTimeout(read(options as RedisClientOptions))).toEqual({ settings });
  });

  const NOT_CARRIED: readonly (readonly [string, object])[] = [
    ["socket.checkServerIdentity", { socket: { tls: true, checkServerIdentity: () => undefined } }],
    ["socket.passphrase", { socket: { tls: true, key: "KEY", passphrase: "x" } }],
    ["socket.path", { socket: { tls: true, path: "/x" } }],
    ["socket.lookup", { socket: { lookup: () => undefined } }],
    ["database", { database: 256 }],
    ["credentialsProvider", { credentialsProvider: { type: "async-credentials-provider" } }],
  ];
  test.each(NOT_CARRIED)("not carried over: %s", (obstacle, options) => {
    expect(read(options as RedisClientOptions)).toEqual({ obstacle });
  });
});

describe("driven themselves, because who replaced a method wants it to be called:", () => {
  afterEach(() => {
    vi.restoreAllMocks();
  });

  test("a subclass of ioredis", async () => {
    class Sub extends Redis {
      override eval = undefined as never;
    }
    class Evaluating extends Redis {}
    Object.assign(Evaluating.prototype, { eval: vi.fn().mockResolvedValue(0) });
    class Sending extends Redis {
      override sendCommand(): unknown {
        return Promise.resolve(0);
      }
    }
    expect(readClient(new Sub({ lazyConnect: true }))).toHaveProperty("obstacle");
    const evaluating = new Evaluating({ lazyConnect: true });
    expect(await createRedisBackend(evaluating).isLocked({ key: "k" })).toBe(false);
    expect(Evaluating.prototype.eval).toHaveBeenCalledOnce();
    const sending = new Sending({ lazyConnect: true });
    expect(await createRedisBackend(sending).isLocked({ key: "k" })).toBe(false);
    const error = thrownLockError(() => createRedisBackend(sending, { transport: "native" }));
    expect(error.message).toContain("sendCommand, which is not its class's,");
    // One that replaces nothing is as good as its class.
    class Plain extends Redis {}
    expect(readClient(new Plain({ lazyConnect: true }))).toHaveProperty("settings");
  });

  const client4 = createClient4 as unknown as typeof createClient;
  test.each([
    ["ioredis", () => new Redis({ lazyConnect: true }), ["eval", "sendCommand"]],
    ["node-redis 4", () => client4(), ["eval"]],
    ["node-redis 5", () => createClient(), ["eval", "sendCommand", "_executeCommand"]],
  ] as const)("a patched prototype of %s", async (_, create, names) => {
    for (const name of names) {
      const client = create();
      expect(readClient(client)).toHaveProperty("settings");
      for (const holder of prototypes(client, name)) {
        const spy = vi.spyOn(holder, name).mockResolvedValue(0);
        expect(readClient(client)).toEqual({ obstacle: `${name}, which is not its class's,` });
        expect(await createRedisBackend(client).isLocked({ key: "k" })).toBe(false);
        expect(spy).toHaveBeenCalledOnce();
        spy.mockRestore();
      }
      expect(readClient(client)).toHaveProperty("settings");
    }
  });

  /** The prototype that users reach, and the one that has the method. */
  function prototypes(client: object, name: string): Set<Record<string, () => unknown>> {
    let holder = Object.getPrototypeOf(client) as object;
    const first = holder;
    while (!Object.hasOwn(holder, name)) holder = Object.getPrototypeOf(holder) as object;
    return new Set([first, holder]) as never;
  }
});

describe("driven themselves, because there is nothing to read:", () => {
  const mock = { eval: vi.fn() };
  const replaced = Object.assign(new Redis({ lazyConnect: true }), mock);
  const other = new Redis({ lazyConnect: true });
  const CLIENTS: readonly (readonly [string, { eval: (...args: never[]) => unknown }])[] = [
    ["a mock", mock],
    ["a mock with options", Object.assign({ options: { host: "h", port: 1 } }, mock)],
    ["a function with eval", Object.assign(() => undefined, mock)],
    ["a wrapper", { eval: (...args: Parameters<Redis["eval"]>) => other.eval(...args) }],
    ["a Proxy without options", new Proxy(other, { get: (target, name) => name === "options" ? undefined : Reflect.get(target, name) as unknown })], // prettier-ignore
    ["a client whose eval was replaced", replaced],
    ["a pool of node-redis", createClientPool({})],
  ];
  test.each(CLIENTS)("%s", (_, client) => {
    expect(readClient(client)).toHaveProperty("obstacle");
    createRedisBackend(client);
    const error = thrownLockError(() => createRedisBackend(client, { transport: "native" }));
    expect(error.message).toMatch(/^transport "native" cannot take over /);
  });

  test("ioredis-mock", async () => {
    const { default: RedisMock } = await import("ioredis-mock");
    expect(readClient(new RedisMock())).toHaveProperty("obstacle");
  });
});

test("a client of Valkey GLIDE is called what it is", () => {
  // What its classes have, of which one alone is not enough.
  class GlideClient {
    config = { addresses: [{ host: "localhost" }] };
    customCommand(): void {}
    invokeScript(): void {}
  }
  class GlideClusterClient extends GlideClient {}
  for (const client of [new GlideClient(), new GlideClusterClient()]) {
    const error = thrownLockError(() => createRedisBackend(client as never));
    expect(error.code).toBe("InvalidArgument");
    expect(error.message).toMatch(
      /^client is one of Valkey GLIDE, whose connection cannot be used: pass its URL or connection options/,
    );
  }
});
