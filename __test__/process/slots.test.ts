/** In which ways semaphores are known to fail that keep their holders under one key, by the clocks of their clients. */

import { setTimeout as sleep } from "node:timers/promises";
import type { SyncGuardBackend } from "syncguard";
import { createPostgresBackend, setupSchema } from "syncguard/postgres";
import { createRedisBackend } from "syncguard/redis";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
// @ts-expect-error a module in plain JavaScript
import { wrongClock } from "../../verify/frame/clock.mjs";
import { start, startProgram } from "../support/child";
import { startPostgres } from "../support/postgres";
import { startRedis } from "../support/redis";
import { until } from "../support/until";

type Server = { url: string; stop: () => Promise<void> };
type Told = { ok: boolean; nowMs: number };

const stores: Record<string, [() => Promise<Server>, (url: string) => SyncGuardBackend]> = {
  Redis: [() => startRedis(), createRedisBackend],
  PostgreSQL: [
    async () => {
      const server = await startPostgres();
      await setupSchema(server.url);
      return server;
    },
    createPostgresBackend,
  ],
};

const clock = wrongClock as (aheadMs: number) => NodeJS.ProcessEnv;
const fixture = new URL("fixtures/slot.mjs", import.meta.url).pathname;

describe.each(Object.entries(stores))("on %s", (_, [startServer, createBackend]) => {
  let server: Server;
  let backend: SyncGuardBackend;
  beforeAll(async () => {
    server = await startServer();
    backend = createBackend(server.url);
  });
  afterAll(async () => {
    await backend.close();
    await server.stop();
  });

  test("whoever asks for half a second does not evict a holder of thirty", async () => {
    const held = await backend.lock({ key: "limit", slots: 1 }, { ttlMs: 30_000 });
    const until = performance.now() + 1_600;
    let attempts = 0;
    for (; performance.now() < until; attempts += 1) {
      const claims = [{ key: "limit", slots: 1 }];
      expect(await backend.acquire({ claims, ttlMs: 500 })).toMatchObject({ ok: false });
      await sleep(20);
    }
    expect(attempts).toBeGreaterThan(1);
    expect(held.signal.aborted).toBe(false);
    expect(await held.release()).toEqual({ ok: true });
  });

  test("a client whose clock is eleven seconds ahead steals nothing", async () => {
    const held = await backend.lock({ key: "partner", slots: 1 }, { ttlMs: 10_000 });
    const args = [fixture, server.url, "10000"];
    const ahead = startProgram(process.execPath, args, clock(11_000));
    const { code, stdout, stderr } = await ahead.finished;
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    const { ok, nowMs } = JSON.parse(stdout) as Told;
    expect(nowMs - Date.now()).toBeGreaterThan(5_000);
    expect(ok).toBe(false);
    expect(await held.release()).toEqual({ ok: true });
  });

  test("the slots of holders that crashed are free after one TTL", async () => {
    const args = [server.url, "2000", "holds"];
    const holders = [start("node", "slot.mjs", args), start("node", "slot.mjs", args)];
    await Promise.all(holders.map((holder) => holder.printed("}")));
    const claims = [{ key: "others", slots: 2 }];
    const attempt = () => backend.acquire({ claims, ttlMs: 30_000 });
    expect(await attempt()).toMatchObject({ ok: false });
    const killed = performance.now();
    for (const { child } of holders) child.kill("SIGKILL");
    const slots = new Set<number | undefined>();
    await until(async () => {
      const granted = await attempt();
      if (granted.ok) slots.add(granted.locks[0]?.slot);
      return slots.size === 2;
    }, 20_000);
    expect(slots).toEqual(new Set([1, 2]));
    // Not before the last heartbeat could have been lost.
    expect(performance.now() - killed).toBeGreaterThan(1_000);
  });
});
