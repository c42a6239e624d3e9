/** Who takes part in `npm run bench -- alternatives`: each does what it is measured at, once. */

import { afterAll, beforeAll, expect, test } from "vitest";
// @ts-expect-error a module of the benchmarks, in plain JavaScript
import { contenders, storeOf } from "../../bench/alternatives/contenders.mjs";
// @ts-expect-error a module of the benchmarks, in plain JavaScript
import { urlOf } from "../../bench/alternatives/postgres.mjs";
// @ts-expect-error a module of the benchmarks, in plain JavaScript
import { handedOver as judge, startMember as start } from "../../bench/alternatives/rows.mjs";
// @ts-expect-error a module of the benchmarks, in plain JavaScript
import { startServer as startPostgresServer } from "../../bench/postgres/server.mjs";
// @ts-expect-error a module of the benchmarks, in plain JavaScript
import { startServer as startRedisServer } from "../../bench/redis/server.mjs";
import { setupSchema } from "syncguard/postgres";
import { startEmulator } from "../support/firestore.js";
import { until } from "../support/until.js";

type Member = {
  ask: <T>(task: string, options?: object) => Promise<T>;
  stop: () => Promise<void>;
};
type Server = { port: number; stop: () => Promise<void> };
type Redis = Server & {
  admin: {
    keys: (pattern: string) => Promise<string[]>;
    pexpiretime: (key: string) => Promise<number>;
  };
};
type Reports = { waits: number[]; holds: [number, number][] }[];

const startRedis = startRedisServer as () => Promise<Redis>;
const startPostgres = startPostgresServer as () => Promise<Server>;
const startMember = start as (id: string, place: string | number) => Member;
const handedOver = judge as (reports: Reports, ms: number) => Record<string, number>;
const known = contenders as Record<string, { held?: string }>;

let redis: Redis;
const places: Record<string, string | number> = {};
const stops: (() => Promise<void>)[] = [];
beforeAll(async () => {
  const servers = await Promise.all([startRedis(), startPostgres(), startEmulator()]);
  stops.push(...servers.map((server) => () => server.stop()));
  const [, postgres, firestore] = servers;
  redis = servers[0];
  Object.assign(places, { redis: redis.port, postgres: postgres.port, firestore: firestore.host });
  await setupSchema((urlOf as (port: number) => string)(postgres.port));
});
afterAll(async () => {
  await Promise.all(stops.map((stop) => stop()));
});

const ids = Object.keys(known);
const storeFor = storeOf as (id: string) => string;

test.concurrent.each(ids)("%s locks, is refused, waits, serves and holds", async (id) => {
  const member = startMember(id, places[storeFor(id)] ?? "");
  try {
    const once = { inFlight: 1, ms: 1, warmMs: 1 };
    expect(await member.ask("pairs", once)).toMatchObject({ rate: expect.any(Number) as number });
    expect(await member.ask("contended", once)).toMatchObject({
      rate: expect.any(Number) as number,
    });

    const task = { waiters: 2, holdMs: 1, ms: 50 };
    const { share, p99 } = handedOver([await member.ask("waiters", task)], 50);
    expect(share).toBeGreaterThan(0);
    expect(share).toBeLessThanOrEqual(1);
    expect(p99).toBeGreaterThan(0);

    const port = await member.ask<number>("serve", { keys: 3 });
    const response = await fetch(`http://127.0.0.1:${port}`);
    expect([response.status, await response.text()]).toEqual([200, "done\n"]);
    expect(await member.ask("served")).toEqual({
      loopP99: expect.any(Number) as number,
      loopMax: expect.any(Number) as number,
    });
    await member.ask("endServing");

    const pattern = known[id]?.held;
    if (pattern === undefined) return;
    await member.ask("hold", { locks: 3, ttlMs: 2_000 });
    const held = await redis.admin.keys(pattern);
    expect(held).toHaveLength(3);
    const ends = await redis.admin.pexpiretime(held[0] ?? "");
    // Extended: its time ends later than it did.
    await until(async () => (await redis.admin.pexpiretime(held[0] ?? "")) > ends);
    expect(await member.ask("holding", { ms: 1 })).toMatchObject({ lost: 0 });
    await member.ask("letGo");
    expect(await redis.admin.keys(pattern)).toEqual([]);
  } finally {
    await member.stop();
  }
});

test("two that hold one lock are not a figure", () => {
  const holds: [number, number][] = [
    [0, 5],
    [4, 9],
  ];
  expect(() => handedOver([{ waits: [1, 1], holds }], 10)).toThrow("two held one lock");
});
