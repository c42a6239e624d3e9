/** Worker threads that end in the middle of what they do with locks. */

import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { run } from "../support/child";
import { type RedisServer, startRedis } from "../support/redis";
import { newKey } from "../support/suite";
import { temporaryFolder } from "../support/temp";
import { until } from "../support/until";

const TTL_MS = 500;
/** The tolerance of a second, and time for what was under way: docs/reliability.md, "The fault matrix". */
const LEFT_MS = TTL_MS + 1_000 + 2_000;

type Result = { turns: number; overlaps: number; freeAfterMs: number };

/** Nothing but fence counters, and nobody who listens. */
async function expectNothingLeft({ admin }: RedisServer): Promise<void> {
  await until(async () => (await admin.keys("*")).every((key) => key.includes("fence:")));
  expect(await admin.pubsub("CHANNELS")).toEqual([]);
}

/** The process lives, nobody was in there beside another, and locks end with their threads. */
async function expectToBeSafe(url: string): Promise<void> {
  const { code, signal, stdout, stderr } = await run("node", "busy-threads.mjs", [
    url,
    String(TTL_MS),
  ]);
  expect({ code, signal, stderr }).toEqual({ code: 0, signal: null, stderr: "" });
  const { turns, overlaps, freeAfterMs } = JSON.parse(stdout) as Result;
  expect(overlaps).toBe(0);
  expect(turns).toBeGreaterThanOrEqual(10 * 20);
  expect(freeAfterMs).toBeLessThan(LEFT_MS);
}

test("on SQLite, threads can end at any moment", { timeout: 120_000 }, async () => {
  const folder = temporaryFolder();
  onTestFinished(folder.remove);
  await expectToBeSafe(`sqlite:${join(folder.path, "locks.db")}`);
});

test("on Redis, threads can end at any moment", { timeout: 120_000 }, async () => {
  const server = await startRedis();
  onTestFinished(server.stop);
  await expectToBeSafe(server.url);
  await expectNothingLeft(server);
});

test(
  "on Redis, what is on its way when a thread ends is given back, and the process goes on",
  { timeout: 120_000 },
  async () => {
    const server = await startRedis();
    onTestFinished(server.stop);
    const args = [server.url, newKey()];
    const { code, signal, stdout, stderr } = await run("node", "in-flight-threads.mjs", args);
    expect({ code, signal, stderr }).toEqual({ code: 0, signal: null, stderr: "" });
    const { left, goesOn, asked } = JSON.parse(stdout) as Record<string, number>;
    expect({ left, goesOn }).toEqual({ left: 0, goesOn: true });
    expect(asked).toBeGreaterThanOrEqual(30 * 32);
    await expectNothingLeft(server);
  },
);
