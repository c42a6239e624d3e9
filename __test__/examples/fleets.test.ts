/** The examples that start several processes and come to an end. */

import { expect, test } from "vitest";
import { startExample } from "./example.js";

test.concurrent("cron: each run on one machine", async () => {
  const example = startExample("cron", { RUNS: "4" });
  expect(await example.ended).toEqual({ code: 0, stderr: "" });
  expect(example.lines.at(-1)).toMatch(/^\d+ reports, none twice$/);
  expect(example.lines.filter((line) => /made the report/.test(line))).not.toEqual([]);
  expect(example.lines.filter((line) => /at it|already/.test(line))).not.toEqual([]);
});

test.concurrent("cron: SIGTERM ends it", async () => {
  const example = startExample("cron", { RUNS: "1000" });
  await example.line(/made the report/);
  example.child.kill("SIGTERM");
  expect((await example.ended).code).toBe(0);
  expect(await example.isLocked("cron:report")).toBe(false);
});

test.concurrent("migration: one instance migrates, the others wait", async () => {
  const example = startExample("migration");
  expect(await example.ended).toEqual({ code: 0, stderr: "" });
  expect(example.lines.filter((line) => /carried out/.test(line))).toHaveLength(1);
  expect(example.lines.filter((line) => /nothing to migrate/.test(line))).toHaveLength(2);
  expect(example.lines.filter((line) => /serves/.test(line))).toHaveLength(3);
  expect(example.lines.at(-1)).toBe("migrations, in order: 001-accounts, 002-payments, 003-index");
});

test.concurrent("queue-worker: what a killed worker leaves is done, each job once", async () => {
  const example = startExample("queue-worker");
  expect(await example.ended).toEqual({ code: 0, stderr: "" });
  expect(example.lines.at(-1)).toBe("4 jobs done, 0 left");
  const finished = example.lines.flatMap((line) => /finishes (\S+)/.exec(line)?.[1] ?? []);
  expect(finished.sort()).toEqual(["job-1", "job-2", "job-3", "job-4"]);
  expect(example.lines).toContainEqual(expect.stringMatching(/^second: \S+ put back$/));
});
