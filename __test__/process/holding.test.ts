/** Locks that extend themselves, where their process or their thread ends. */

import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { expect, onTestFinished, test } from "vitest";
import { createRedisBackend } from "syncguard/redis";
import { createSqliteBackend } from "syncguard/sqlite";
import { expectToEnd, run, runtimes, start } from "../support/child";
import { startRedis } from "../support/redis";
import { temporaryFolder } from "../support/temp";
import { until } from "../support/until";

function newFile(): string {
  const folder = temporaryFolder();
  onTestFinished(folder.remove);
  return join(folder.path, "locks.db");
}

test.each(runtimes)("they keep no process of %s alive", async (runtime) => {
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
      found: {
        ...{ forgotten: [], polled: [], kept: all },
        ...{ method: all, asserting: all, heard: all, running: all },
      },
      reasons: ["LockLost", "LockLost", "LockLost"],
      losses: [],
      warnings: ["SyncGuardWarning SYNCGUARD_FORGOTTEN_LOCK"],
      events: ["lost", "lost"],
    });
  },
);

test.each([
  ["plain", "sqlite"],
  ["extending", "sqlite"],
  ["several", "sqlite"],
  ["extending", "redis"],
])(
  "a process that was stopped sees at once that its locks are lost: %s on %s",
  async (kind, store) => {
    const server = store === "redis" ? await startRedis() : undefined;
    onTestFinished(async () => server?.stop());
    const path = newFile();
    const url = server?.url ?? `sqlite:${path}`;
    const goesOn = newFile();
    const { child, printed, finished } = start("node", "frozen.mjs", [url, kind, goesOn]);
    await printed("held");
    child.kill("SIGSTOP");
    const backend =
      server === undefined ? createSqliteBackend(path) : createRedisBackend(server.url);
    onTestFinished(backend.close);
    for (const key of ["one", "unasked"]) {
      await backend.lock(key, { ttlMs: 60_000, acquisition: { timeoutMs: 60_000 } });
    }
    writeFileSync(goesOn, "");
    child.kill("SIGCONT");
    const { stdout } = await finished;
    const looks = stdout.trim().split("\n").at(-1) ?? "";
    expect(JSON.parse(looks)).toEqual(["LockLost", true, "LockLost", "LockLost", "LockLost"]);
  },
);

test("a blocked event loop sees the end of a lock, and that another one was extended", async () => {
  const backend = createSqliteBackend(newFile(), { onLost: () => undefined });
  onTestFinished(backend.close);
  const [plain, extending] = await Promise.all([
    backend.lock("plain", { ttlMs: 300 }),
    backend.lock("extending", { ttlMs: 1_500, autoExtend: true }),
  ]);
  const signals = [plain.signal, extending.signal];
  const untilMs = performance.now() + 4_000;
  while (performance.now() < untilMs);
  expect(signals.map(({ aborted }) => aborted)).toEqual([true, false]);
  expect(() => plain.assertHeld()).toThrow("its time is over");
  extending.assertHeld();
  await extending.release();
  expect(() => extending.assertHeld()).toThrow("it was released");
});
