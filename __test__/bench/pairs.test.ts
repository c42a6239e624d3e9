/** Who takes part in the benchmarks of pairs: each has a process of its own, and takes and releases its locks there. */

import { afterEach, expect, test } from "vitest";
// @ts-expect-error a module of the benchmarks, in plain JavaScript
import { contender as start, intervalOfMedian } from "../../bench/lib/compare.mjs";
// @ts-expect-error a module of the benchmarks, in plain JavaScript
import { endMembers } from "../../bench/lib/members.mjs";
// @ts-expect-error a module of the benchmarks, in plain JavaScript
import { startCluster as startRedisCluster } from "../../bench/redis-cluster/cluster.mjs";
// @ts-expect-error a module of the benchmarks, in plain JavaScript
import { startServer as startPlain, startTlsServer } from "../../bench/redis/server.mjs";
import { createRedisBackend, type RedisConnectionOptions } from "syncguard/redis";
import { root } from "../package/installed.js";

type Contender = { sample: (inFlight: number, ms: number) => Promise<Record<string, number>> };
type Server = { address: RedisConnectionOptions; stop: () => Promise<void> };

const contender = start as (module: URL, who: string, options: object) => Contender;
const startCluster = startRedisCluster as (count: number) => Promise<Server>;
const module = (suite: string): URL =>
  new URL(`../../bench/${suite}/contenders.mjs`, import.meta.url);

const stops: (() => Promise<void>)[] = [];
afterEach(async () => {
  (endMembers as () => void)();
  await Promise.all(stops.splice(0).map((stop) => stop()));
});

async function started(server: Promise<Server>): Promise<RedisConnectionOptions> {
  const { address, stop } = await server;
  stops.push(stop);
  return address;
}

const number = expect.any(Number) as number;
const measured = { rate: number, p50: number, p99: number, cpu: number, mainBusy: number };

test.each([
  ["a server", startPlain as () => Promise<Server>],
  ["a server with TLS", startTlsServer as () => Promise<Server>],
])("this package and scripts by hand take locks of %s", async (_, startServer) => {
  const address = await started(startServer());
  for (const who of ["syncguard", "ioredis"]) {
    const { sample } = contender(module("redis"), who, { from: root, address });
    expect(await sample(2, 1)).toMatchObject(measured);
  }
});

test("in a cluster, scripts by hand take the locks that this package takes", async () => {
  const address = await started(startCluster(3));
  const [ours, byHand] = ["syncguard", "ioredis"].map((who) =>
    contender(module("redis-cluster"), who, { from: root, address }),
  );
  expect(await ours?.sample(16, 1)).toMatchObject(measured);
  expect(await byHand?.sample(16, 1)).toMatchObject(measured);
  await using backend = createRedisBackend(address, { keyPrefix: "locks" });
  for (const index of [0, 1, 2]) await backend.acquire({ key: `key:${index}`, ttlMs: 60_000 });
  await expect(byHand?.sample(3, 1)).rejects.toThrow("nobody else can hold this lock");
});

test("a build is taken from the folder of another checkout", async () => {
  const { sample } = contender(module("sqlite"), "syncguard", { from: root, path: ":memory:" });
  expect(await sample(1, 1)).toMatchObject(measured);
  const missing = contender(module("sqlite"), "syncguard", { from: "/nowhere", path: ":memory:" });
  await expect(missing.sample(1, 1)).rejects.toThrow(/ended|Cannot find/);
});

test("a median lies between values that tables of the sign test name", () => {
  const between = intervalOfMedian as (sorted: number[]) => [number, number];
  const ranks = (count: number) => between(Array.from({ length: count }, (_, at) => at + 1));
  expect([5, 7, 15, 20, 30].map(ranks)).toEqual([
    [1, 5],
    [1, 7],
    [4, 12],
    [6, 15],
    [10, 21],
  ]);
});
