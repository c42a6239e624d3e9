/** The examples that start several processes and come to an end. */

import { expect, test, vi } from "vitest";
import { PATIENCE_MS, startExample } from "./example.js";

vi.setConfig({ testTimeout: PATIENCE_MS });

test.concurrent("cron: each period on one machine, also when one is killed", async () => {
  const example = startExample("cron", { RUNS: "16" });
  expect(await example.ended).toEqual({ code: 0, stderr: "" });
  expect(example.lines.at(-1)).toMatch(/^\d+ reports, none twice, none missed$/);
  const killed = example.lines.findIndex((line) => line.endsWith(" gets SIGKILL"));
  expect(killed).toBeGreaterThan(0);
  expect(example.lines.slice(killed).filter((line) => /made the report/.test(line))).not.toEqual(
    [],
  );
  expect(example.lines.filter((line) => /at it|already/.test(line))).not.toEqual([]);
});

test.concurrent("cron: SIGTERM ends it", async () => {
  const example = startExample("cron", { RUNS: "1000" });
  await example.line(/made the report/);
  example.child.kill("SIGTERM");
  expect((await example.ended).code).toBe(0);
  expect(await example.isLocked("cron:report")).toBe(false);
});

test.concurrent("leader: another leads after a kill, and at once after SIGTERM", async () => {
  const example = startExample("leader");
  expect(await example.ended).toEqual({ code: 0, stderr: "" });
  expect(example.lines.at(-1)).toBe("3 terms, rounds in order");
  const terms = example.lines.filter((line) => /: leads, under fence \d{15}$/.test(line));
  expect(new Set(terms.map((line) => line.split(":")[0])).size).toBe(3);
  expect(example.lines.filter((line) => line.endsWith(": stopped"))).toHaveLength(2);
});

test.concurrent("once: each job once a second, whoever has it in its schedule", async () => {
  const example = startExample("once", { RUNS: "3" });
  const { code, stderr } = await example.ended;
  expect(code).toBe(0);
  // On a busy machine, NestJS' scheduler says that it was late.
  expect(stderr.replace(/^\[Cron\] Missed execution deadline .*\n/gm, "")).toBe("");
  expect(example.lines.at(-1)).toMatch(/^\d+ runs, none twice$/);
  for (const of of ["node-cron", "coordinated", "croner", "nest", "http"]) {
    const runs = example.lines.filter((line) => line.includes(`: ${of}: did `));
    expect(runs.length).toBeGreaterThanOrEqual(3);
  }
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

test.concurrent("transfer: both accounts or neither, also when a teller is killed", async () => {
  const example = startExample("transfer");
  expect(await example.ended).toEqual({ code: 0, stderr: "" });
  expect(example.lines.at(-1)).toMatch(/^\d+ transfers, 400 in the accounts, no rule broken$/);
  expect(example.lines).toContain("first gets SIGKILL");
  for (const name of ["second", "third"]) expect(example.lines).toContain(`${name}: done`);
});

test.concurrent(
  "catalogue: nobody sees half of a rebuild, also when a reader is killed",
  async () => {
    const example = startExample("catalogue");
    expect(await example.ended).toEqual({ code: 0, stderr: "" });
    expect(example.lines.at(-1)).toMatch(/^5 builds, [1-9]\d* reads, 0 torn$/);
    expect(example.lines).toContain("first gets SIGKILL");
    for (const name of ["rebuilder", "second", "third"]) {
      expect(example.lines).toContain(`${name}: done`);
    }
  },
);

test.concurrent("api-client: never more than five calls at a time", async () => {
  const example = startExample("api-client");
  expect(await example.ended).toEqual({ code: 0, stderr: "" });
  expect(example.lines.at(-1)).toMatch(/^\d+ calls, at most [1-5] at a time, 0 refused$/);
  expect(example.lines).toContain("first gets SIGKILL");
  for (const name of ["second", "third"]) {
    expect(example.lines).toContain(`${name}: 20 of 20 calls answered`);
  }
});
