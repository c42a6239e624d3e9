/** Worker threads that are terminated in the middle of what they do with locks. */

import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { run } from "../support/child";
import { startRedis } from "../support/redis";
import { temporaryFolder } from "../support/temp";
import { until } from "../support/until";

const TTL_MS = 500;
/** The tolerance of a second, and time for what was under way: docs/reliability.md, "The fault matrix". */
const LEFT_MS = TTL_MS + 1_000 + 2_000;

type Result = { turns: number; overlaps: number; freeAfterMs: number };

/** The process lives, nobody was in there beside another, and locks end with their threads. */
async function expectToBeSafe(url: string): Promise<void> {
  const { code, signal, stdout, stderr } = await run("node", "busy-threads.mjs", [
    url,
    String(TTL_MS),
  ]);
  expect({ code, signal, stderr }).toEqual({ code: 0, signal: null, stderr: "" });
  const { turns, overlaps, freeAfterMs } = JSON.parse(stdout) as Result;
  expect(overlaps).toBe(0);
  expect(turns).toBeGreaterThanOrEqual(5 * 20);
  expect(freeAfterMs).toBeLessThan(LEFT_MS);
}

test("on SQLite, threads can be terminated at any moment", { timeout: 120_000 }, async () => {
  const folder = temporaryFolder();
  onTestFinished(folder.remove);
  await expectToBeSafe(`sqlite:${join(folder.path, "locks.db")}`);
});

test("on Redis, threads can be terminated at any moment", { timeout: 120_000 }, async () => {
  const server = await startRedis();
  onTestFinished(server.stop);
  await expectToBeSafe(server.url);
  // Nothing but fence counters, and nobody who listens.
  await until(async () => (await server.admin.keys("*")).every((key) => key.includes("fence:")));
  expect(await server.admin.pubsub("CHANNELS")).toEqual([]);
});
