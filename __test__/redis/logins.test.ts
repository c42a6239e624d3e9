/** User names and passwords that functions give, such as tokens that expire. */

import { inspect } from "node:util";
import type { SyncGuardBackend } from "syncguard";
import { createRedisBackend, type RedisConnectionOptions } from "syncguard/redis";
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import { lockError } from "../support/errors";
import { type RedisServer, startRedis, startSentinelSet } from "../support/redis";
import { newKey } from "../support/suite";
import { until } from "../support/until";

const USER = "user app on >first ~syncguard:* &syncguard:* +@all";

let server: RedisServer;
beforeAll(async () => {
  server = await startRedis({
    lines: ["user admin on >admin ~* &* +@all", "user default off", USER],
  });
});
afterAll(async () => {
  await server.stop();
});

/** How many connections are those of the user. */
async function connections({ admin }: RedisServer): Promise<number> {
  const clients = String(await admin.call("CLIENT", "LIST"));
  return clients.match(/ user=app /g)?.length ?? 0;
}

/** Whether a call is answered. */
async function works(backend: Pick<SyncGuardBackend, "isLocked">): Promise<boolean> {
  return await backend.isLocked({ key: newKey() }).then(
    () => true,
    () => false,
  );
}

function open(options: RedisConnectionOptions, connectTimeoutMs = 5_000) {
  const backend = createRedisBackend(
    { host: "127.0.0.1", port: server.port, ...options },
    { connectTimeoutMs },
  );
  onTestFinished(backend.close);
  return backend;
}

test("are asked for by each connection, also by that which hears of releases", async () => {
  let current = "first";
  const username = vi.fn(() => "app");
  const password = vi.fn(() => Promise.resolve(current));
  const backend = open({ username, password });
  expect(password).not.toHaveBeenCalled();
  const key = newKey();
  const held = await backend.lock(key, { ttlMs: 60_000 });
  const next = backend.lock(key, { ttlMs: 60_000, autoExtend: true });
  await until(async () => (await connections(server)) > 1);
  await held.release();
  await (await next).release();
  const before = await connections(server);
  expect(before).toBeGreaterThan(1);
  const asked = password.mock.calls.length;
  expect(asked).toBeGreaterThanOrEqual(before);
  expect(username).toHaveBeenCalledTimes(asked);
  // What was given before counts no more.
  current = "second";
  await server.admin.call("ACL", "SETUSER", "app", "resetpass", ">second");
  await server.admin.call("CLIENT", "KILL", "USER", "app");
  await until(async () => {
    try {
      return await backend.isLocked({ key }).then(() => true);
    } catch (error) {
      // The connection has just ended.
      expect(error).toMatchObject({ code: "ServiceUnavailable" });
      return false;
    }
  });
  expect(password.mock.calls.length).toBeGreaterThan(asked);
  await server.admin.call("ACL", "SETUSER", "app", "resetpass", ">first");
});

test("stand beside a URL", async () => {
  const url = `redis://app@127.0.0.1:${server.port}`;
  const backend = createRedisBackend({ url, password: () => "first" });
  onTestFinished(backend.close);
  expect(await backend.isLocked({ key: newKey() })).toBe(false);
});

test("that cannot be given are an error with the cause, without its words, and are asked for anew", async () => {
  const token = "a-token-that-has-expired";
  await server.admin.call("ACL", "SETUSER", "app", `>${token}`);
  const password = vi.fn<() => Promise<string>>(() => Promise.resolve(token));
  const backend = open({ username: "app", password });
  const key = newKey();
  expect(await backend.isLocked({ key })).toBe(false);
  password.mockRejectedValue(new RangeError(`${token} is too old`));
  await server.admin.call("CLIENT", "KILL", "USER", "app");
  const failed = async () => (await lockError(backend.isLocked({ key }))).code === "AuthFailed";
  await until(failed);
  const error = await lockError(backend.isLocked({ key }));
  expect(error.message).toBe("the function for the login failed");
  expect(error.cause).toMatchObject({ message: "RangeError" });
  expect(inspect(error, { depth: 9 })).not.toContain(token);
  password.mockResolvedValue(token);
  // A refusal stands for a moment.
  await until(async () => await works(backend));
});

test.each([[undefined], [1], [null]])("that are no texts are refused: %s", async (answer) => {
  for (const part of ["username", "password"] as const) {
    const backend = open({ username: "app", password: "first", [part]: () => answer });
    const error = await lockError(backend.isLocked({ key: newKey() }));
    expect(error.code).toBe("InvalidArgument");
    expect(error.message).toBe(`the ${part} function must give a string`);
  }
});

test("that never come end the wait, and are asked for anew", async () => {
  const password = vi.fn<() => Promise<string>>(() => new Promise(() => undefined));
  const backend = open({ username: "app", password }, 50);
  const error = await lockError(backend.isLocked({ key: newKey() }));
  expect(error.code).toBe("NetworkTimeout");
  expect(error.message).toContain("has not answered");
  password.mockResolvedValue("first");
  await until(async () => await works(backend));
});

test("are used for the primary that a Sentinel names", async () => {
  const set = await startSentinelSet();
  onTestFinished(set.stop);
  const [command, ...user] = ["SETUSER", ...USER.split(" ").slice(1)];
  await set.primary.admin.call("ACL", command, ...user);
  const password = vi.fn(() => "first");
  const backend = createRedisBackend({ url: set.url, username: "app", password });
  onTestFinished(backend.close);
  await (await backend.lock(newKey(), { ttlMs: 60_000 })).release();
  expect(await connections(set.primary)).toBeGreaterThan(0);
  expect(password.mock.calls.length).toBeGreaterThanOrEqual(await connections(set.primary));
});
