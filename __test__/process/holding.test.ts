/** Locks that extend themselves, where their process or their thread ends. */

import { once } from "node:events";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { expect, onTestFinished, test } from "vitest";
import { createSqliteBackend } from "syncguard/sqlite";
import { expectToEnd, run } from "../support/child";
import { startRedis } from "../support/redis";
import { temporaryFolder } from "../support/temp";
import { until } from "../support/until";

function newFile(): string {
  const folder = temporaryFolder();
  onTestFinished(folder.remove);
  return join(folder.path, "locks.db");
}

test.each(["node", "bun"] as const)("they keep no process of %s alive", async (runtime) => {
  await expectToEnd(runtime, "hold-and-end.mjs", [newFile()]);
});

test("they end with their worker", async () => {
  const file = newFile();
  const backend = createSqliteBackend(file);
  onTestFinished(backend.close);
  const key = "some:key";
  const worker = new Worker(new URL("./fixtures/holding-worker.mjs", import.meta.url), {
    workerData: file,
  });
  await once(worker, "message");
  await sleep(2_500);
  expect(await backend.isLocked({ key })).toBe(true);
  await worker.terminate();
  await until(async () => !(await backend.isLocked({ key })));
});

test.each(["sqlite", "redis"])(
  "on %s they end once their handles were collected",
  async (store) => {
    const server = store === "redis" ? await startRedis() : undefined;
    onTestFinished(async () => server?.stop());
    const { code, stdout } = await run("node", "forgotten.mjs", [store, server?.url ?? newFile()]);
    expect(code).toBe(0);
    const all = ["native", "wrapped", "plain"];
    expect(JSON.parse(stdout)).toEqual({
      // Longer than their TTL and the tolerance: what is still there has been extended.
      found: { forgotten: [], polled: [], kept: all, method: all, heard: all, running: all },
      reasons: ["LockLost", "LockLost", "LockLost"],
      losses: [],
      warnings: ["SyncGuardWarning SYNCGUARD_FORGOTTEN_LOCK"],
      events: ["lost", "lost"],
    });
  },
);
