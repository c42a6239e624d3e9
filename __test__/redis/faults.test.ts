/** Servers that fail under load. */

import { Redis } from "ioredis";
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { createRedisBackend } from "syncguard/redis";
import { lockError } from "../support/errors";
import { expectFree, GRACE_MS, load, TIMEOUT_MS } from "../support/load";
import { type RedisServer, startRedis, startSentinelSet } from "../support/redis";
import { type Backend, newKey } from "../support/suite";
import { until } from "../support/until";

const OPTIONS = { operationTimeoutMs: TIMEOUT_MS, connectTimeoutMs: 300 };

const WAYS = ["native", "client"] as const;

describe.each(WAYS)("a server that fails under load, %s transport", (transport) => {
  let server: RedisServer;
  let backend: Backend;
  beforeEach(async () => {
    server = await startRedis();
    const client = new Redis(server.port, {
      lazyConnect: transport === "native",
      retryStrategy: () => 20,
      maxRetriesPerRequest: 1,
    });
    client.on("error", () => undefined);
    backend = createRedisBackend(client, { ...OPTIONS, transport });
    return async () => {
      await backend.close();
      client.disconnect();
    };
  });
  afterEach(async () => {
    await server.stop();
  });

  test("killed and started again", async () => {
    const running = load(backend);
    await running.more(100);
    await server.kill();
    await until(() => running.stats.codes.size > 0);
    await server.start();
    await running.more(100);
    const { slowestMs, codes } = await running.end();
    expect([...codes].sort().join()).toMatch(/^(NetworkTimeout|ServiceUnavailable|NetworkTimeout,ServiceUnavailable)$/); // prettier-ignore
    expect(slowestMs).toBeLessThan(TIMEOUT_MS + GRACE_MS);
  });

  test("SCRIPT FLUSH", async () => {
    const running = load(backend);
    for (let round = 0; round < 5; round += 1) {
      await running.more(20);
      await server.admin.script("FLUSH");
    }
    await running.more(20);
    expect((await running.end()).codes.size).toBe(0);
  });

  test("CLIENT KILL", async () => {
    const running = load(backend);
    for (let round = 0; round < 5; round += 1) {
      await running.more(50);
      await server.admin.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
    }
    await running.more(50);
    const { slowestMs, codes } = await running.end();
    // Waiting for the next connection may take all of the time that there is.
    for (const code of codes) expect(["ServiceUnavailable", "NetworkTimeout"]).toContain(code);
    expect(slowestMs).toBeLessThan(TIMEOUT_MS + GRACE_MS);
    // Those whose answer was lost are undone.
    await expectFree(backend, running.failed);
  });

  test("CLIENT PAUSE past the timeout", async () => {
    const running = load(backend);
    await running.more(50);
    await server.admin.call("CLIENT", "PAUSE", String(TIMEOUT_MS * 2), "ALL");
    const controller = new AbortController();
    const key = newKey();
    const aborted = lockError(backend.acquire({ key, ttlMs: 120_000, signal: controller.signal }));
    await until(() => running.stats.codes.size > 0);
    controller.abort();
    // A connection that gives no answers is given up, perhaps before the abort.
    const ends = ["Aborted", "NetworkTimeout", "ServiceUnavailable"];
    expect(ends).toContain((await aborted).code);
    await running.more(50);
    const { slowestMs, codes } = await running.end();
    expect(codes).toContain("NetworkTimeout");
    // What came last on that connection has failed with it.
    for (const code of codes) expect(["ServiceUnavailable", "NetworkTimeout"]).toContain(code);
    expect(slowestMs).toBeLessThan(TIMEOUT_MS + GRACE_MS);
    // The server carried these out when it woke up; they were undone.
    await expectFree(backend, [key, ...running.failed]);
  });

  test("maxmemory reached", async () => {
    const running = load(backend);
    await running.more(50);
    await server.admin.config("SET", "maxmemory", "1");
    await until(() => running.stats.codes.size > 0);
    await server.admin.config("SET", "maxmemory", "0");
    await running.more(50);
    const { slowestMs, codes } = await running.end();
    expect([...codes]).toEqual(["ServiceUnavailable"]);
    expect(slowestMs).toBeLessThan(TIMEOUT_MS + GRACE_MS);
    await expectFree(backend, running.failed);
  });
});

test("a failover by Sentinel", { timeout: 60_000 }, async () => {
  const set = await startSentinelSet();
  onTestFinished(set.stop);
  const backend = createRedisBackend(set.url, OPTIONS);
  onTestFinished(backend.close);
  const running = load(backend);
  await running.more(100);
  await set.primary.kill();
  await until(() => running.stats.codes.size > 0);
  await running.more(100);
  const { slowestMs, codes } = await running.end();
  for (const code of codes) expect(["ServiceUnavailable", "NetworkTimeout"]).toContain(code);
  expect(slowestMs).toBeLessThan(TIMEOUT_MS + GRACE_MS);
  expect(await set.replica.admin.info("replication")).toContain("role:master");
});

test("a wrong password", async () => {
  const server = await startRedis({ lines: ["requirepass s3cret"] });
  onTestFinished(server.stop);
  const wrong = new URL(server.url);
  wrong.password = "wrong";
  const right = new URL(server.url);
  right.password = "s3cret";
  for (const url of [server.url, wrong.href]) {
    const backend = createRedisBackend(url, OPTIONS);
    const running = load(backend);
    await until(() => running.failed.length > 200);
    const { slowestMs, codes, pairs } = await running.end();
    expect({ codes: [...codes], pairs }).toEqual({ codes: ["AuthFailed"], pairs: 0 });
    expect(slowestMs).toBeLessThan(TIMEOUT_MS + GRACE_MS);
    await backend.close();
  }
  const backend = createRedisBackend(right.href, OPTIONS);
  expect(await backend.isLocked({ key: newKey() })).toBe(false);
  await backend.close();
});

test("nobody there", async () => {
  const server = await startRedis();
  await server.stop();
  const backend = createRedisBackend(server.url, OPTIONS);
  const started = performance.now();
  expect((await lockError(backend.isLocked({ key: newKey() }))).code).toBe("ServiceUnavailable");
  expect(performance.now() - started).toBeLessThan(TIMEOUT_MS + GRACE_MS);
});
