/** Locks that extend themselves, where their process or their thread ends. */

import { once } from "node:events";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { expect, onTestFinished, test } from "vitest";
import { createSqliteBackend } from "syncguard/sqlite";
import { expectToEnd } from "../support/child";
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
