/** `held.eval()`: scripts of users' own under a lock, on every way to the server. */

import { Redis } from "ioredis";
import { createClient } from "redis";
import { createClient as createClient4 } from "redis-4";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { lock, type RedisGuard, withTelemetry } from "syncguard";
import { createDisposableHandle } from "syncguard/common";
import { createRedisBackend, type RedisClient } from "syncguard/redis";
import { createSqliteBackend } from "syncguard/sqlite";
import { createTestBackend } from "syncguard/testing";
import { lockError } from "../support/errors";
import { type RedisServer, startRedis, startRedis62 } from "../support/redis";
import { newKey } from "../support/suite";
import { until } from "../support/until";

let server: RedisServer;
let old: RedisServer;
beforeAll(async () => {
  [server, old] = await Promise.all([startRedis(), startRedis62()]);
});
afterAll(async () => {
  await Promise.all([server.stop(), old.stop()]);
});

type Opened = { backend: ReturnType<typeof createRedisBackend>; admin: Redis };
type Way = () => Promise<Opened> | Opened;

function opened(client: RedisClient | string, on: RedisServer, transport?: "client"): Opened {
  const backend = createRedisBackend(client, transport && { transport });
  onTestFinished(backend.close);
  return { backend, admin: on.admin };
}

function ioredis(transport?: "client", options: object = {}): Opened {
  const client = new Redis(server.port, { ...options, lazyConnect: transport === undefined });
  onTestFinished(() => client.disconnect());
  return opened(client, server, transport);
}

async function nodeRedis(create: typeof createClient, transport?: "client", options = {}) {
  const client = create({ url: server.url, ...options });
  if (transport !== undefined) {
    await client.connect();
    onTestFinished(async () => {
      await client.quit();
    });
  }
  return opened(client, server, transport);
}

const WAYS: readonly (readonly [string, Way])[] = [
  ["a URL", () => opened(server.url, server)],
  ["a client of ioredis", () => ioredis()],
  ["a client of node-redis", () => nodeRedis(createClient)],
  ["a URL of Redis 6.2", () => opened(old.url, old)],
  ["through a client of ioredis", () => ioredis("client")],
  ["through a client of node-redis", () => nodeRedis(createClient, "client")],
  [
    "through a client of node-redis with RESP3",
    () => nodeRedis(createClient, "client", { RESP: 3 }),
  ],
  [
    "through a client of node-redis 4",
    () => nodeRedis(createClient4 as unknown as typeof createClient, "client"),
  ],
  [
    "through a wrapper",
    () => {
      const { admin } = server;
      const wrapper = { eval: (...args: Parameters<Redis["eval"]>) => admin.eval(...args) };
      return opened(wrapper, server);
    },
  ],
];

const INCR = "return redis.call('INCR', KEYS[1])";

/** What a client of ioredis gives for the same script. */
async function asIoredis(client: Redis, script: string): Promise<unknown> {
  const plain = (reply: unknown): unknown => {
    if (Array.isArray(reply)) return reply.map(plain);
    return reply instanceof Error ? { message: reply.message } : reply;
  };
  return plain(await client.eval(script, 0));
}

describe.each(WAYS)("eval() by %s", (_, open) => {
  test("sees its own keys and arguments", async () => {
    const { backend } = await open();
    await using held = await backend.lock(newKey());
    const script = "return {#KEYS, #ARGV, KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]}";
    const options = { keys: ["a", "é\0"], arguments: ["x", 1, 2.5] };
    expect(await held.eval(script, options)).toEqual([2, 3, "a", "é\0", "x", "1", "2.5"]);
    expect(await held.eval("return #KEYS + #ARGV")).toBe(0);
    expect(await held.eval("return #KEYS + #ARGV", { keys: undefined })).toBe(0);
    // What a mock that answers everything with 1 would be helped with.
    expect(await held.eval("return 1", { keys: ["a", "b"], arguments: [1, 2, 3, 4] })).toBe(1);
  });

  test.each([
    ["", null],
    ["return nil", null],
    ["return false", null],
    ["return true", 1],
    ["return 3.99", 3],
    ["return -123456789012", -123_456_789_012],
    ["return '3.99'", "3.99"],
    ["return ''", ""],
    ["return 'é'", "é"],
    ["return 'a\\255b'", "a\u{fffd}b"],
    ["return redis.status_reply('FINE')", "FINE"],
    ["return redis.call('GET', 'none')", null],
    ["return {}", []],
    ["return {1, nil, 3}", [1]],
    ["return {1, 'a', {{false, true}}}", [1, "a", [[null, 1]]]],
    ["return {redis.error_reply('MINE x'), 1}", [{ message: "MINE x" }, 1]],
  ])("of %j gives %j, as ioredis does", async (script, expected) => {
    const { backend, admin } = await open();
    await using held = await backend.lock(newKey());
    const reply = await held.eval(script);
    expect(reply).toEqual(
      Array.isArray(expected) && typeof expected[0] === "object"
        ? [expect.objectContaining(expected[0] as object), 1]
        : expected,
    );
    expect(await asIoredis(admin, script)).toEqual(expected);
  });

  test("of the types of RESP3 gives those of RESP2", async () => {
    const { backend } = await open();
    await using held = await backend.lock(newKey());
    const resp3 = (text: string) => held.eval(`redis.setresp(3) return ${text}`);
    expect(await resp3("{map = {a = 1}}")).toEqual(["a", 1]);
    expect(await resp3("{set = {a = true}}")).toEqual(["a"]);
    expect(await resp3("{double = 1.5}")).toBe("1.5");
    expect(await resp3("{true, false}")).toEqual([1, 0]);
  });

  test.each([
    ["return redis.error_reply('MINE text')", "Internal", /^MINE text$/],
    ["return redis.error_reply('own words')", "Internal", /own words$/],
    ["error('boom')", "Internal", /user_script:1: boom/],
    ["local a\n\nreturn a.b", "Internal", /user_script:3: attempt to index/],
    ["return redis.call('LPUSH', KEYS[1], 1)", "Internal", /WRONGTYPE Operation/],
    ["\nreturn return", "InvalidArgument", /^script: ERR Error compiling .*user_script:2:/],
    ["return 1 end", "InvalidArgument", /^script: ERR Error compiling/],
    ["return redis.error_reply('OOM x')", "ServiceUnavailable", /memory is full: OOM x$/],
  ] as const)("of %j is rejected with %s", async (script, code, words) => {
    const { backend, admin } = await open();
    const key = newKey();
    await using held = await backend.lock(key);
    await admin.set("text", "1");
    const error = await lockError(held.eval(script, { keys: ["text"] }));
    expect(error.code).toBe(code);
    expect(error.message).toMatch(words);
    expect(error.message).not.toContain(held.lockId);
    expect(error.context?.key).toBe(key);
    expect(held.signal.aborted).toBe(false);
    expect(await held.eval("return 7")).toBe(7);
  });

  test("runs nothing without the lock, and says that it is lost", async () => {
    const { backend, admin } = await open();
    const other = createRedisBackend(server.url);
    onTestFinished(other.close);
    const counter = newKey();
    const ways: ((key: string) => Promise<unknown>)[] = [
      (key) => backend.forceRelease(key),
      (key) => admin.del(`syncguard:${key}`),
      async (key) => {
        await backend.forceRelease(key);
        expect(await backend.acquire({ key, ttlMs: 60_000 })).toMatchObject({ ok: true });
      },
      // Its time is over.
      (key) => until(async () => (await admin.exists(`syncguard:${key}`)) === 0),
    ];
    for (const [place, lose] of ways.entries()) {
      const key = newKey();
      const onLost = vi.fn();
      const ttlMs = place === 3 ? 50 : 60_000;
      const held = await backend.lock(key, { ttlMs, onLost });
      await admin.set(counter, 1);
      if (place < 3) expect(await held.eval(INCR, { keys: [counter] })).toBe(2);
      else await admin.set(counter, 2);
      await lose(key);
      const error = await lockError(held.eval(INCR, { keys: [counter] }));
      expect(error.code).toBe("LockLost");
      expect(error.context).toMatchObject({ key, lockId: held.lockId });
      expect(await admin.get(counter)).toBe("2");
      expect(held.signal.aborted).toBe(true);
      expect(held.signal.reason).toBe(error);
      expect(onLost).toHaveBeenCalledExactlyOnceWith(error, { key, lockId: held.lockId });
      expect(await lockError(held.eval(INCR, { keys: [counter] }))).toBe(error);
      expect(await held.release()).toEqual({ ok: false });
      await backend.forceRelease(key);
    }
  });

  test("needs all of several locks, and names the one that is gone", async () => {
    const { backend, admin } = await open();
    const keys = [newKey(), newKey(), newKey()];
    const counter = newKey();
    const held = await backend.lock(keys, { onLost: () => undefined });
    expect(await held.eval(INCR, { keys: [counter], arguments: ["x"] })).toBe(1);
    await backend.forceRelease(keys[1] as string);
    const error = await lockError(held.eval(INCR, { keys: [counter] }));
    expect(error).toMatchObject({ code: "LockLost", context: { key: keys[1] } });
    expect(held.signal.reason).toBe(error);
    expect(await admin.get(counter)).toBe("1");
    await held.release();
  });

  test("is in the handle of a slot, and in that of a callback", async () => {
    const { backend, admin } = await open();
    const [key, counter] = [newKey(), newKey()];
    const permit = await backend.lock({ key, slots: 3 }, { onLost: () => undefined });
    expect(await permit.eval(INCR, { keys: [counter] })).toBe(1);
    await admin.del(`syncguard:${key}\u{37e}${permit.slot}`);
    expect(await lockError(permit.eval(INCR, { keys: [counter] }))).toHaveProperty(
      "code",
      "LockLost",
    );
    await permit.release();
    const seen = await lock(backend, (handle) => handle.eval(INCR, { keys: [counter] }), { key });
    expect(seen).toBe(2);
    const config = { key, onLost: () => undefined };
    const late = lock(
      backend,
      async (handle) => {
        await backend.forceRelease(key);
        return await handle.eval(INCR, { keys: [counter] });
      },
      config,
    );
    expect(await lockError(late)).toHaveProperty("code", "LockLost");
    expect(await admin.get(counter)).toBe("2");
  });

  test("works where others see each operation, and not once the lock was released", async () => {
    const { backend } = await open();
    const counter = newKey();
    const observed = withTelemetry(backend, { onEvent: () => undefined });
    const held = await observed.lock(newKey());
    expect(await held.eval(INCR, { keys: [counter] })).toBe(1);
    await held.release();
    const late = await lockError(held.eval(INCR, { keys: [counter] }));
    expect(late).toMatchObject({ code: "LockLost", context: { lockId: held.lockId } });
    // A release that came in time is none that lost the lock.
    expect(held.signal.aborted).toBe(false);
  });
});

describe("eval()", () => {
  test("sends the text of a script once, and again when the server has lost it", async () => {
    const { backend, admin } = opened(server.url, server);
    await using held = await backend.lock(newKey());
    const counter = newKey();
    const incr = async () => await held.eval(INCR, { keys: [counter], arguments: [Math.random()] });
    const sent = async () => {
      const stats = await admin.info("commandstats");
      await admin.config("RESETSTAT");
      const count = (name: string) =>
        Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
      return [count("eval"), count("evalsha")];
    };
    await incr();
    await sent();
    await Promise.all(Array.from({ length: 20 }, incr));
    expect(await sent()).toEqual([0, 20]);
    await admin.script("FLUSH");
    expect(await incr()).toBe(22);
    expect(await incr()).toBe(23);
    expect((await sent())[0]).toBe(1);
  });

  test.each<readonly [string, unknown[]]>([
    ["script must be a string", [undefined]],
    ["script must be a string", [Buffer.from("return 1")]],
    ["script must be well-formed Unicode", ["return '\ud800'"]],
    ["options must be an object", ["return 1", 1]],
    ["options must be an object", ["return 1", ["a"]]],
    ["keys must be an array", ["return 1", { keys: "a" }]],
    ["keys[0] must be a string", ["return 1", { keys: [1] }]],
    ["keys[1] must be a string", ["return 1", { keys: ["a", , "b"] }]],
    ["keys[1] must be well-formed Unicode", ["return 1", { keys: ["a", "\ud800"] }]],
    ["arguments must be an array", ["return 1", { arguments: new Set() }]],
    ["arguments[0] must be a string or a finite number", ["return 1", { arguments: [NaN] }]],
    ["arguments[0] must be a string or a finite number", ["return 1", { arguments: [null] }]],
    ["arguments[1] must be a string or a finite number", ["return 1", { arguments: ["", 1n] }]],
    ["arguments[0] must be well-formed Unicode", ["return 1", { arguments: ["\ud800"] }]],
    ["eval() has no option args", ["return 1", { args: [] }]],
    ["signal must be an AbortSignal", ["return 1", { signal: 1 }]],
  ])("says that %s", async (message, args) => {
    const { backend } = opened(server.url, server);
    await using held = await backend.lock(newKey());
    const run = held.eval as (...args: unknown[]) => Promise<unknown>;
    const error = await lockError(run.apply(held, args));
    expect(error.code).toBe("InvalidArgument");
    expect(error.message).toContain(message);
  });

  test("is there on Redis alone, also on handles that were made of others and spread", async () => {
    const key = newKey();
    const sqlite = createSqliteBackend(":memory:");
    onTestFinished(sqlite.close);
    const redis = createRedisBackend(server.url);
    onTestFinished(redis.close);
    const result = await redis.acquire({ key, ttlMs: 60_000 });
    if (!result.ok) throw new Error("locked");
    const { lockId, fence, expiresAtMs } = result;
    const copy = {
      ok: true as const,
      lockId: lockId.split("").reverse().join(""),
      fence,
      expiresAtMs,
    };
    for (const held of [
      await sqlite.lock(key),
      await createTestBackend().lock(key),
      createDisposableHandle({ ...redis }, copy, key),
    ]) {
      const others = held as unknown as { eval: () => Promise<never>; guard: () => Promise<never> };
      const error = await lockError(others.eval());
      expect(error).toMatchObject({ code: "InvalidArgument" });
      expect(error.message).toBe("eval() is for locks in Redis");
      expect((await lockError(others.guard())).message).toContain("PostgreSQL and Firestore");
    }
    const again = createDisposableHandle(
      redis,
      { ok: true as const, lockId, fence, expiresAtMs },
      key,
    );
    for (const held of [result, { ...result }, again]) {
      expect(await (held as unknown as RedisGuard).eval("return 1")).toBe(1);
    }
    await result.release();
  });

  test("ends with its signal, and then may have run", async () => {
    const { backend, admin } = opened(server.url, server);
    const held = await backend.lock(newKey());
    expect(await lockError(held.eval("return 1", { signal: AbortSignal.abort() }))).toMatchObject({
      code: "Aborted",
    });
    await admin.call("CLIENT", "PAUSE", "60000", "WRITE");
    const controller = new AbortController();
    const pending = held.eval("return 1", { signal: controller.signal });
    controller.abort();
    const error = await lockError(pending);
    expect(error.code).toBe("Aborted");
    expect(error.message).toMatch(/: the script may have run$/);
    await server.admin.call("CLIENT", "UNPAUSE");
    await held.release();
  });

  test("puts the prefix of a client of ioredis before its keys, on either transport", async () => {
    for (const transport of [undefined, "client"] as const) {
      const { backend, admin } = ioredis(transport, { keyPrefix: "mine:" });
      await using held = await backend.lock(newKey());
      const script = "redis.call('SET', KEYS[1], ARGV[1]) return {KEYS[1], ARGV[1]}";
      const reply = await held.eval(script, { keys: ["data"], arguments: ["data"] });
      expect(reply).toEqual(["mine:data", "data"]);
      expect(await admin.get("mine:data")).toBe("data");
      await admin.del("mine:data");
    }
  });

  test("is refused once the backend is closed, and after releaseAll()", async () => {
    const { backend } = opened(server.url, server);
    const held = await backend.lock(newKey());
    await backend.releaseAll();
    expect(await lockError(held.eval("return 1"))).toHaveProperty("code", "LockLost");
    await backend.close();
    const again = createRedisBackend(server.url);
    const kept = await again.lock(newKey());
    await again.close();
    expect(await lockError(kept.eval("return 1"))).toHaveProperty("code", "Aborted");
  });

  test("works while the lock extends itself", async () => {
    const { backend, admin } = opened(server.url, server);
    const key = newKey();
    const held = await backend.lock(key, {
      ttlMs: 60_000,
      autoExtend: { everyMs: 50 },
      onLost: () => undefined,
    });
    const before = held.expiresAtMs;
    await until(() => held.expiresAtMs > before);
    expect(await held.eval("return 7")).toBe(7);
    await admin.del(`syncguard:${key}`);
    expect(await lockError(held.eval("return 7"))).toHaveProperty("code", "LockLost");
    expect(held.signal.aborted).toBe(true);
    await held.release();
  });
});
