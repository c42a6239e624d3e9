/** A Redis Cluster that changes while locks are in use. */

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Cluster } from "ioredis";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { createRedisBackend } from "syncguard/redis";
import { start } from "../support/child";
import { expectFree, GRACE_MS, load, TIMEOUT_MS } from "../support/load";
import { type RedisCluster, startRedisCluster } from "../support/redis-cluster";
import { newKey } from "../support/suite";
import { temporaryFolder } from "../support/temp";
import { until } from "../support/until";

let cluster: RedisCluster;
beforeAll(async () => {
  cluster = await startRedisCluster();
});
afterAll(async () => {
  await cluster.stop();
});

/** The slot of a lock (docs/format.md, "Redis Cluster"). */
async function slotOf(key: string): Promise<number> {
  const shard = createHash("sha256").update(`syncguard:${key}`).digest().subarray(0, 1);
  const { admin } = cluster.nodes[1]!;
  return (await admin.call("CLUSTER", "KEYSLOT", `{syncguard:${shard.toString("hex")}}`)) as number;
}

test("nobody gets in beside the holder while slots move", { timeout: 90_000 }, async () => {
  const folder = temporaryFolder();
  onTestFinished(folder.remove);
  const keys = ["fleet-a", "fleet-b", "fleet-c"];
  const ways = ["native", "native,ioredis", "native", "native,node-redis"];
  const fleet = [...ways, ...ways].map((way) => {
    const args = [cluster.url, folder.path, way, ...keys];
    return start("node", "../../redis-cluster/fixtures/fleet.mjs", args);
  });
  await Promise.all(fleet.map(({ printed }) => printed("running")));
  const fencesOf = (key: string): string[] =>
    readFileSync(join(folder.path, `${key}.fences`), "utf8")
      .trim()
      .split("\n");
  const more = async (key: string): Promise<void> => {
    const before = fencesOf(key).length;
    await until(() => fencesOf(key).length > before + 5, 20_000);
  };
  for (const [number, key] of keys.entries()) {
    const slot = await slotOf(key);
    const home = cluster.ownerOf(slot);
    const other = cluster.nodes.find((node) => node !== home)!;
    // While the slot is open, its keys are on either node, and servers refuse scripts that need a key of each.
    const meanwhile = (): Promise<void> => more(keys[(number + 1) % keys.length]!);
    await cluster.moveSlot(slot, home, other, meanwhile);
    await more(key);
    await cluster.moveSlot(slot, other, home, meanwhile);
    await more(key);
  }
  for (const { child } of fleet) child.stdin.end();
  for (const { code, stdout, stderr } of await Promise.all(fleet.map((one) => one.finished))) {
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    const report = JSON.parse(stdout.replace("running\n", "")) as { wrong: string[] };
    expect(report.wrong).toEqual([]);
  }
  for (const key of keys) expect(fencesOf(key)).toEqual([...new Set(fencesOf(key))].sort());
});

test(
  "what ioredis sends again after lost connections is granted once",
  { timeout: 60_000 },
  async () => {
    const startup = cluster.nodes.map(({ port }) => ({ host: "127.0.0.1", port }));
    const client = new Cluster(startup);
    client.on("error", () => undefined);
    await client.ping();
    const backend = createRedisBackend(client, { transport: "client", keyPrefix: "resent" });
    onTestFinished(async () => {
      await backend.close();
      client.disconnect();
    });
    const running = load(backend);
    for (let round = 0; round < 10; round += 1) {
      await running.more(20);
      const kill = ["KILL", "TYPE", "normal", "SKIPME", "yes"] as const;
      await Promise.all(cluster.nodes.map(({ admin }) => admin.call("CLIENT", ...kill)));
    }
    await running.more(20);
    const { codes } = await running.end();
    for (const code of codes) expect(["ServiceUnavailable", "NetworkTimeout"]).toContain(code);
    // No lock is left that nobody knows of.
    const primaries = cluster.nodes.slice(0, 3);
    await until(async () => {
      const held = await Promise.all(primaries.map(({ admin }) => admin.keys("{resent:*:id:*")));
      return held.flat().length === 0;
    }, 20_000);
  },
);

test("a primary that dies is replaced by its replica", { timeout: 90_000 }, async () => {
  const startup = cluster.nodes.map(({ port }) => ({ host: "127.0.0.1", port }));
  const client = new Cluster(startup, { redisOptions: { maxRetriesPerRequest: 1 } });
  client.on("error", () => undefined);
  const options = { operationTimeoutMs: TIMEOUT_MS, connectTimeoutMs: 300 };
  const backends = [
    createRedisBackend(cluster.url, options),
    createRedisBackend(client, { ...options, transport: "client" }),
  ];
  onTestFinished(async () => {
    await Promise.all(backends.map((backend) => backend.close()));
    client.disconnect();
  });
  const [primary, , , replica] = cluster.nodes;
  /** Keys of the primary that dies. */
  const keys: string[] = [];
  while (keys.length < 8) {
    const key = newKey();
    if (cluster.ownerOf(await slotOf(key)) === primary) keys.push(key);
  }
  const loads = backends.map((backend) => load(backend));
  await Promise.all(loads.map((running) => running.more(100)));
  await primary!.kill();
  await until(
    async () => (await replica!.admin.info("replication")).includes("role:master"),
    30_000,
  );
  for (const backend of backends) {
    for (const key of keys) {
      await until(async () => {
        const result = await backend.acquire({ key, ttlMs: 30_000 }).catch(() => undefined);
        return result?.ok === true && (await result.release().catch(() => undefined)) !== undefined;
      }, 30_000);
    }
  }
  await Promise.all(loads.map((running) => running.more(100)));
  for (const [number, running] of loads.entries()) {
    const { slowestMs, codes, failed } = { ...(await running.end()), failed: running.failed };
    for (const code of codes) expect(["ServiceUnavailable", "NetworkTimeout"]).toContain(code);
    expect(slowestMs).toBeLessThan(TIMEOUT_MS + GRACE_MS);
    // Those whose answer was lost are undone.
    await expectFree(backends[number]!, failed);
  }
});
