/** Errors and replies of clients that are driven themselves. */

import { inspect } from "node:util";
import { describe, expect, test, vi } from "vitest";
import type { LockErrorCode } from "syncguard";
import { createRedisBackend } from "syncguard/redis";
import { lockError } from "../support/errors";
import { freePort } from "../support/ports";
import { until } from "../support/until";

const KEY = "secret:key";

const named = (name: string, message = "failed"): Error =>
  Object.assign(new Error(message), { name });
const coded = (code: string): Error => Object.assign(new Error(`connect ${code} ${KEY}`), { code });
const replied = (text: string): Error => named("ReplyError", text);
/** An error inside a script, as Redis before 7 words it. */
const insideScript = (text: string): string =>
  `ERR Error running script (call to f_${"0f".repeat(20)}): @user_script:25: @user_script: 25: ${text}`;

const ERRORS: readonly (readonly [LockErrorCode, Error])[] = [
  ...["ECONNREFUSED", "ECONNRESET", "ENOTFOUND", "EPIPE", "EAI_AGAIN", "EHOSTUNREACH"].map(
    (code) => ["ServiceUnavailable", coded(code)] as const,
  ),
  ["NetworkTimeout", coded("ETIMEDOUT")],
  ["NetworkTimeout", new Error("Command timed out")],
  ["ServiceUnavailable", new Error("Connection is closed.")],
  [
    "ServiceUnavailable",
    named("MaxRetriesPerRequestError", "Reached the max retries per request limit (which is 20)."),
  ],
  ["ServiceUnavailable", named("ClientClosedError", "The client is closed")],
  ["ServiceUnavailable", named("SocketClosedUnexpectedlyError", "Socket closed unexpectedly")],
  ["NetworkTimeout", named("ConnectionTimeoutError", "Connection timeout")],
  ["ServiceUnavailable", new Error("Disconnects client")],
  ["ServiceUnavailable", new (class DisconnectsClientError extends Error {})("of a class")],
  ["ServiceUnavailable", new Error("Command aborted due to connection close")],
  ["ServiceUnavailable", new Error("Cluster is disconnecting.")],
  ["RateLimited", new Error("The queue is full")],
  ["Internal", new Error("it says: Disconnects client")],
  ["AuthFailed", replied("NOAUTH Authentication required.")],
  ["AuthFailed", replied("WRONGPASS invalid username-password pair or user is disabled.")],
  ["AuthFailed", replied(`NOPERM No permissions to access a key ${KEY}`)],
  ["InvalidArgument", replied("WRONGTYPE Operation against a key holding the wrong kind of value")],
  ["ServiceUnavailable", replied("READONLY You can't write against a read only replica.")],
  ["ServiceUnavailable", replied("LOADING Redis is loading the dataset in memory")],
  ["ServiceUnavailable", replied("BUSY Redis is busy running a script.")],
  ["ServiceUnavailable", replied("OOM command not allowed when used memory > 'maxmemory'.")],
  ["ServiceUnavailable", replied("MISCONF Redis is configured to save RDB snapshots")],
  ["ServiceUnavailable", replied("CLUSTERDOWN The cluster is down")],
  ["ServiceUnavailable", replied("MASTERDOWN Link with MASTER is down")],
  ["ServiceUnavailable", replied("TRYAGAIN Multiple keys request during rehashing of slot")],
  ["ServiceUnavailable", replied(insideScript("-READONLY You can't write"))],
  ["ServiceUnavailable", replied(insideScript("-OOM command not allowed"))],
  [
    "ServiceUnavailable",
    replied(
      "ERR Script attempted to execute a write command while the cluster is down and readonly script: " +
        `${"0f".repeat(20)}, on @user_script:25.`,
    ),
  ],
  [
    "ServiceUnavailable",
    replied(
      insideScript(
        "Lua script attempted to execute a write command while the cluster is down and readonly",
      ),
    ),
  ],
  ["Internal", replied(insideScript("Unknown Redis command called from Lua script"))],
  ["RateLimited", replied("ERR max number of clients reached")],
  ["InvalidArgument", replied("CROSSSLOT Keys in request don't hash to the same slot")],
  ["ServiceUnavailable", replied("ERR Connection timed out")],
  ["ServiceUnavailable", replied("upstream failure")],
  ["Internal", new Error("unheard of")],
];

test.each(ERRORS.map(([code, error]) => [error.message, error, code] as const))(
  "%s",
  async (_, thrown, code) => {
    const backend = createRedisBackend({ eval: vi.fn().mockRejectedValue(thrown) });
    const error = await lockError(backend.acquire({ key: KEY, ttlMs: 5_000 }));
    expect(error.code).toBe(code);
    expect(error.context?.key).toBe(KEY);
    // It ends with the client's own words, without what is nobody's business.
    expect(error.message.endsWith(`: ${thrown.message.replaceAll(KEY, "[hidden]")}`)).toBe(true);
    expect(inspect(error)).not.toContain(KEY);
  },
);

test("neither lock ids, owners nor the user part of a URL appear in an error", async () => {
  const calls: string[][] = [];
  const backend = createRedisBackend({
    eval: (...call: string[]) => {
      calls.push(call);
      throw new Error(`${call.slice(2).join(" ")} at redis://me:pass@host/1`);
    },
  });
  const owner = "owner of it";
  const error = await lockError(backend.acquire({ key: KEY, ttlMs: 5_000, owner }));
  expect(error.message).toMatch(/^the redis client failed: .* at redis:\/\/\[hidden\]@host\/1$/);
  const lockId = calls[0]?.[5] ?? "none";
  expect(lockId).toMatch(/^[\w-]{22}$/);
  for (const secret of [KEY, owner, lockId, "pass"]) expect(inspect(error)).not.toContain(secret);
});

test("lock() on a server that is down tells why", async () => {
  const port = await freePort();
  const url = `redis://127.0.0.1:${port}`;
  for (const timeoutMs of [200, 2_000]) {
    const backend = createRedisBackend(url);
    const error = await lockError(backend.lock(KEY, { acquisition: { timeoutMs } }));
    expect(error.code).toBe("ServiceUnavailable");
    expect(error.message).toContain(`127.0.0.1:${port}: Connection refused`);
    expect((error.cause as Error).message).toContain("Connection refused");
    await backend.close();
  }
});

describe("a client that misbehaves", () => {
  test("may throw synchronously", async () => {
    const backend = createRedisBackend({
      eval: () => {
        throw coded("ECONNRESET");
      },
    });
    const operation = backend.isLocked({ key: KEY });
    expect((await lockError(operation)).code).toBe("ServiceUnavailable");
  });

  test.each([["a text"], [undefined], [null], [42]])(
    "may throw what is no error: %s",
    async (thrown) => {
      const backend = createRedisBackend({ eval: vi.fn().mockRejectedValue(thrown) });
      expect((await lockError(backend.isLocked({ key: KEY }))).code).toBe("Internal");
    },
  );

  test("may never answer", async () => {
    const backend = createRedisBackend(
      { eval: () => new Promise(() => undefined) },
      { operationTimeoutMs: 50 },
    );
    const error = await lockError(backend.acquire({ key: KEY, ttlMs: 5_000 }));
    expect(error.code).toBe("NetworkTimeout");
    expect(error.message).toContain(" 50 ms");
  });
});

const cyclic: unknown[] = [];
cyclic.push(cyclic);

describe("a reply that makes no sense is an internal error", () => {
  const MALFORMED: [string, unknown][] = [
    2, -1, "OK", null, undefined, true, false, {}, [], [1], [1, 1], [0], ["OK"], [1, 0, 5],
    [1, -1, 5], [1, "x", 5], [1, 1, "soon"], [1, 1.5, 5], [2, 1, 5], [1, 1e15, 5], [1, 1, 5, 6],
    [[1, 1, 5]], Number.NaN, Number.POSITIVE_INFINITY, new Map([[1, 1]]), cyclic,
  ].map((reply) => [inspect(reply), reply]); // prettier-ignore

  test.each(MALFORMED)("acquire: %s", async (_, reply) => {
    const run = vi.fn().mockResolvedValueOnce(reply).mockResolvedValue(1);
    const backend = createRedisBackend({ eval: run });
    const error = await lockError(backend.acquire({ key: KEY, ttlMs: 5_000 }));
    expect(error.code).toBe("Internal");
    // It may have been granted: the lock is freed by its id.
    const [, , , indexKey] = run.mock.calls[0] as string[];
    await until(() => run.mock.calls.length === 2);
    expect(run.mock.calls[1]).toEqual(expect.arrayContaining([1, indexKey]));
  });

  test.each([2, -3, "OK", null, undefined, {}, [1], 1.5].map((reply) => [inspect(reply), reply]))(
    "release: %s",
    async (_, reply) => {
      const backend = createRedisBackend({ eval: vi.fn().mockResolvedValue(reply) });
      expect((await lockError(backend.release({ lockId: "a".repeat(22) }))).code).toBe("Internal");
    },
  );

  test.each([2, "OK", null, {}, [1], [1, "x"], [0, 5]].map((reply) => [inspect(reply), reply]))(
    "extend: %s",
    async (_, reply) => {
      const backend = createRedisBackend({ eval: vi.fn().mockResolvedValue(reply) });
      const operation = backend.extend({ lockId: "a".repeat(22), ttlMs: 5_000 });
      expect((await lockError(operation)).code).toBe("Internal");
    },
  );

  test("a bare 1 of a client is no grant: no fence is made up", async () => {
    for (const kind of [{ sendCommand: vi.fn() }, { isCluster: true }, { EVAL: vi.fn() }]) {
      const backend = createRedisBackend({ eval: vi.fn().mockResolvedValue(1), ...kind });
      const acquisition = backend.acquire({ key: KEY, ttlMs: 5_000 });
      expect((await lockError(acquisition)).code).toBe("Internal");
      const extension = backend.extend({ lockId: "a".repeat(22), ttlMs: 5_000 });
      expect((await lockError(extension)).code).toBe("Internal");
    }
  });

  test.each([2, "OK", null, [], {}].map((reply) => [inspect(reply), reply]))(
    "isLocked: %s",
    async (_, reply) => {
      const backend = createRedisBackend({ eval: vi.fn().mockResolvedValue(reply) });
      expect((await lockError(backend.isLocked({ key: KEY }))).code).toBe("Internal");
    },
  );

  test.each(
    [1, "not JSON", "{}", "[]", '{"lockId":1}', [], ["{}", 1], {}].map((reply) => [
      inspect(reply),
      reply,
    ]),
  )("lookup: %s", async (_, reply) => {
    const backend = createRedisBackend({ eval: vi.fn().mockResolvedValue(reply) });
    expect((await lockError(backend.lookup({ key: KEY }))).code).toBe("Internal");
  });
});

test("numbers may come as texts, bytes or big integers", async () => {
  for (const reply of [
    [1, 3, 1_700_000_000_000],
    ["1", "3", "1700000000000"],
    [1n, 3n, 1_700_000_000_000n],
    [Buffer.from("1"), Buffer.from("3"), Buffer.from("1700000000000")],
  ]) {
    const backend = createRedisBackend({ eval: vi.fn().mockResolvedValue(reply) });
    expect(await backend.acquire({ key: KEY, ttlMs: 5_000 })).toMatchObject({
      ok: true,
      fence: "000000000000003",
      expiresAtMs: 1_700_000_000_000,
    });
  }
});

describe("nothing that a client throws or answers ends the process", () => {
  const unreadable = (name: string): object =>
    Object.defineProperty({}, name, {
      get() {
        throw new Error("unreadable");
      },
    });
  const NO_ERROR = "an object was thrown that is no error";

  test.each([
    ["an object without a prototype", Object.create(null) as unknown, NO_ERROR],
    ["an object whose message cannot be read", unreadable("message"), NO_ERROR],
    ["an object whose code cannot be read", unreadable("code"), NO_ERROR],
    ["an object whose name cannot be read", unreadable("name"), NO_ERROR],
    ["an object that is no text", { toString: null }, NO_ERROR],
    ["nothing", undefined, "undefined"],
    ["a symbol", Symbol("odd"), "Symbol(odd)"],
    ["a number", 7, "7"],
  ])("it throws %s", async (_, thrown, words) => {
    const backend = createRedisBackend({ eval: () => Promise.reject(thrown) });
    const error = await lockError(backend.isLocked({ key: KEY }));
    expect(error).toMatchObject({
      code: "Internal",
      message: `the redis client failed: ${words}`,
    });
  });

  test.each([
    ["a function", () => 1, "the client has answered with a function"],
    ["a symbol", Symbol("odd"), "the client has answered with a symbol"],
  ])("it answers with %s", async (_, reply, words) => {
    const backend = createRedisBackend({ eval: () => Promise.resolve(reply) });
    const error = await lockError(backend.isLocked({ key: KEY }));
    expect(error.code).toBe("Internal");
    expect(error.message).toContain(words);
  });

  test("it answers with what cannot be JSON", async () => {
    const circular: unknown[] = [];
    circular.push({ circular });
    const backend = createRedisBackend({ eval: () => Promise.resolve(circular[0]) });
    expect(await lockError(backend.isLocked({ key: KEY }))).toMatchObject({ code: "Internal" });
  });
});
