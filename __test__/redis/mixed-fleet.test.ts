/** Processes on the TypeScript library and on this one share one store. */

import { afterAll, beforeAll, expect, test } from "vitest";
import { createRedisBackend } from "syncguard/redis";
import { getByKeyRaw } from "syncguard";
import { run } from "../support/child";
import { type RedisServer, startRedis } from "../support/redis";
import { newKey, take } from "../support/suite";
import { until } from "../support/until";
// @ts-expect-error a program of its own, in plain JavaScript
import { typescriptLibrary } from "./fixtures/typescript-library.mjs";

type Library = {
  acquire: (opts: {
    key: string;
    ttlMs: number;
  }) => Promise<{ ok: boolean; lockId: string; fence: string; expiresAtMs: number }>;
  release: (opts: { lockId: string }) => Promise<{ ok: boolean }>;
  extend: (opts: { lockId: string; ttlMs: number }) => Promise<{ ok: boolean }>;
  read: (opts: { key: string }) => Promise<Record<string, unknown> | null>;
};
type Report = { granted: number; expired: number; byTheOther: number; wrong: string[] };

let server: RedisServer;
let theirs: Library;
beforeAll(async () => {
  server = await startRedis();
  theirs = (typescriptLibrary as (redis: unknown) => Library)(server.admin);
});
afterAll(async () => {
  await server.stop();
});

test("four processes of both kinds exclude each other", { timeout: 120_000 }, async () => {
  const fleet = ["ours", "theirs", "ours", "theirs"].map((mainly) =>
    run("node", "../../redis/fixtures/fleet.mjs", [server.url, mainly, "150"]),
  );
  const reports: Report[] = [];
  for (const { code, stdout, stderr } of await Promise.all(fleet)) {
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    reports.push(JSON.parse(stdout) as Report);
  }
  expect(reports.flatMap(({ wrong }) => wrong)).toEqual([]);
  for (const { granted, byTheOther } of reports) {
    expect(granted).toBe(150);
    expect(byTheOther).toBeGreaterThan(10);
  }
  const keys = await server.admin.keys("fences:*");
  expect(keys).toHaveLength(3);
  let count = 0;
  for (const key of keys) {
    const fences = await server.admin.lrange(key, 0, -1);
    expect(fences).toEqual([...new Set(fences)].sort());
    count += fences.length;
  }
  expect(count).toBe(reports.reduce((sum, { granted }) => sum + granted, 0));
});

test("what they store is read, extended with its unknown members, and released", async () => {
  const backend = createRedisBackend(server.url);
  for (let round = 0; round < 12; round += 1) {
    const key = newKey();
    const held = await theirs.acquire({ key, ttlMs: 5_000 });
    expect(await backend.acquire({ key, ttlMs: 5_000 })).toMatchObject({ ok: false });
    expect(await getByKeyRaw(backend, key)).toMatchObject({
      key,
      lockId: held.lockId,
      fence: held.fence,
      expiresAtMs: held.expiresAtMs,
    });
    const extended = await backend.extend({ lockId: held.lockId, ttlMs: 60_000 });
    expect(await theirs.read({ key })).toMatchObject({
      lockId: held.lockId,
      expiresAtMs: extended.ok && extended.expiresAtMs,
      unknown: { expiresAtMs: 1 },
    });
    expect(await backend.release({ lockId: held.lockId })).toEqual({ ok: true });
    expect(await theirs.read({ key })).toBeNull();
    expect((await take(backend, key)).fence).toBe("000000000000002");
  }
  await backend.close();
});

test("a lock counts for as long on both sides", async () => {
  const backend = createRedisBackend(server.url);
  const key = newKey();
  const held = await take(backend, key, 100);
  const ended = async (): Promise<boolean> => {
    const [seconds, micros] = await server.admin.time();
    return Number(seconds) * 1_000 + Number(micros) / 1_000 > held.expiresAtMs;
  };
  await until(ended);
  // Within the tolerance it is still held, by the word of either.
  expect(await backend.isLocked({ key })).toBe(true);
  expect(await theirs.acquire({ key, ttlMs: 5_000 })).toEqual({ ok: false });
  await until(async () => !(await backend.isLocked({ key })));
  expect(await theirs.acquire({ key, ttlMs: 5_000 })).toMatchObject({
    ok: true,
    fence: "000000000000002",
  });
  await backend.close();
});
