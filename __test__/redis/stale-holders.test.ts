/** Holders that are stopped between reading and writing until others have their locks, and then go on. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { startRedis } from "../support/redis";

const TTL_MS = 200;
/** The server counts a lock as held for a second longer, and then somebody else needs a moment to write. */
const STOPPED_MS = TTL_MS + 1_500;
const HOLDER = join(import.meta.dirname, "fixtures/stale-holder.mjs");
const [PROCESSES, KEYS, UPDATES, STOPS] = [4, 2, 100, 3];

type Report = { acknowledged: string[]; refused: number };

/** One process, until it has made its updates. */
async function work(url: string, name: number, isGuarded: boolean): Promise<Report> {
  const task = { url, name, isGuarded, updates: UPDATES, stops: STOPS, keys: KEYS, ttlMs: TTL_MS };
  const child = spawn(process.execPath, ["--no-warnings", HOLDER, JSON.stringify(task)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = once(child, "exit");
  let report: Report | undefined;
  try {
    for await (const line of createInterface({ input: child.stdout })) {
      const told = JSON.parse(line) as "stopped" | Report;
      if (told !== "stopped") {
        report = told;
        continue;
      }
      await sleep(STOPPED_MS);
      child.kill("SIGUSR2");
      child.kill("SIGCONT");
    }
  } finally {
    if (report === undefined) child.kill("SIGKILL");
  }
  expect(await ended).toEqual([0, null]);
  return report as Report;
}

/** What is there in the end of the updates that were acknowledged. */
async function seen(isGuarded: boolean) {
  const server = await startRedis();
  try {
    const names = Array.from({ length: PROCESSES }, (_, name) => name);
    const reports = await Promise.all(names.map((name) => work(server.url, name, isGuarded)));
    const acknowledged = reports.flatMap((report) => report.acknowledged);
    const keys = Array.from({ length: KEYS }, (_, key) => key);
    const lists = await server.admin.mget(keys.map((key) => `list:${key}`));
    const counts = await server.admin.mget(keys.map((key) => `count:${key}`));
    const written = lists.flatMap((list) => (list ?? "").split(" ").filter(Boolean));
    const there = new Set(written);
    return {
      acknowledged: acknowledged.length,
      refused: reports.reduce((sum, { refused }) => sum + refused, 0),
      lost: acknowledged.filter((item) => !there.has(item)).length,
      written: written.length,
      counted: counts.reduce((sum, count) => sum + Number(count), 0),
    };
  } finally {
    await server.stop();
  }
}

test("a script under a lock loses no update, and the same without the check loses some", async () => {
  const [guarded, unguarded] = await Promise.all([seen(true), seen(false)]);
  const all = PROCESSES * UPDATES;
  expect(guarded).toMatchObject({ acknowledged: all, lost: 0, written: all, counted: all });
  expect(guarded.refused).toBeGreaterThanOrEqual(PROCESSES * STOPS);
  expect(unguarded).toMatchObject({ acknowledged: all, refused: 0 });
  expect(unguarded.lost).toBeGreaterThan(0);
}, 120_000);
