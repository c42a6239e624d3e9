// A test that failed is asked once more, alone: on real runs of vitest and on programs that print as those of cargo do.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as again from "../../scripts/lib/again.mjs";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as counts from "../../scripts/lib/counts.mjs";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as rust from "../../scripts/lib/rust-tests.mjs";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as typescript from "../../scripts/lib/vitest.mjs";
import { temporaryFolder } from "../support/temp";

type Failure = { where: string; name?: string; text: string; program?: object };
type Result = { passed: number; skipped: number; failures: Failure[]; broken?: string };
type Verdict = { passed: number; failed: number; alone: Failure[]; report: string[] };

const { judge, isFinal, MOST } = again as {
  judge: (results: Result[], ask: (failure: Failure) => Promise<Result>) => Promise<Verdict>;
  isFinal: (failure: Failure) => boolean;
  MOST: number;
};
const { merged } = counts as { merged: (results: Result[]) => Result };
const { runRustTests, runRustTest } = rust as {
  runRustTests: (programs: object[], options: object) => Promise<Result[]>;
  runRustTest: (failure: Failure) => Promise<Result>;
};
const { runVitest, runVitestTest } = typescript as {
  runVitest: (args: string[], cwd: string) => Promise<Result>;
  runVitestTest: (failure: Failure, cwd: string) => Promise<Result>;
};

const folder = temporaryFolder();
afterAll(() => {
  folder.remove();
});

/** A file of vitest, and what `npm test` would say of it. */
async function verdictOf(name: string, code: string): Promise<Verdict> {
  const file = `${name}.test.mjs`;
  const once = join(folder.path, `${name}.ran`);
  writeFileSync(
    join(folder.path, file),
    `import { appendFileSync, readFileSync } from "node:fs";
    const runs = () => (appendFileSync(${JSON.stringify(once)}, "."), readFileSync(${JSON.stringify(once)}).length);
    ${code}`,
  );
  const args = ["--globals", file];
  const ask = (failure: Failure) => runVitestTest(failure, folder.path);
  return await judge([await runVitest(args, folder.path)], ask);
}

test("a test that fails once is listed, and the run is green", async () => {
  writeFileSync(
    join(folder.path, "vitest.config.mjs"),
    "export default { test: { globals: true } };",
  );
  const code = `
    describe("a (queue)", () => { test("is [empty]? $1.5", () => { if (runs() === 1) throw new Error("late"); }); });
    test("is empty", () => {});`;
  const { alone, ...rest } = await verdictOf("once", code);
  expect(rest).toEqual({ passed: 2, failed: 0, report: [] });
  expect(alone).toMatchObject([{ where: "once.test.mjs", name: "a (queue) is [empty]? $1.5" }]);
});

test("a test that fails always is red", async () => {
  const verdict = await verdictOf("always", `test("never", () => { throw new Error("wrong"); });`);
  expect(verdict).toMatchObject({ passed: 0, failed: 1, alone: [] });
  expect(verdict.report[0]).toMatch(/^FAILED always\.test\.mjs: never\n.*wrong/);
});

test("a hook that fails counts, and its file is asked again as a whole", async () => {
  const tests = `test("one", () => {}); test("two", () => {});`;
  const once = `beforeAll(() => { if (runs() === 1) throw new Error("no server"); }); ${tests}`;
  expect(await verdictOf("hook-once", once)).toMatchObject({ passed: 2, failed: 0, alone: [{}] });
  const always = `describe("on a store", () => { afterAll(() => { throw new Error("stuck"); }); ${tests} });`;
  expect(await verdictOf("hook", always)).toMatchObject({ failed: 1, alone: [] });
});

test("a worker that crashes is red, although every test that ended has passed", async () => {
  const code = `test("one", () => {}); test("two", () => { process.kill(process.pid, "SIGKILL"); });`;
  const verdict = await verdictOf("crash", code);
  expect(verdict.failed).toBeGreaterThan(0);
  expect(verdict.alone).toEqual([]);
});

/** A program as cargo makes them: it runs the script with the number of its run. */
function program(name: string, script: string): object {
  const path = join(folder.path, name);
  const count = `n=$(cat ${path}.ran 2>/dev/null || echo 0); n=$((n + 1)); echo $n > ${path}.ran`;
  writeFileSync(path, `#!/bin/sh\n${count}\n${script}\n`, { mode: 0o755 });
  return { name, path, folder: folder.path };
}

const failing = (text: string): string => `
  printf 'running 1 test\\n\\n---- a::b ----\\n${text}\\n\\nfailures:\\n    a::b\\n\\n'
  echo 'test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out'; exit 101`;
const passing = `
  echo 'running 1 test'; echo 'test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out'`;

async function verdictOn(...programs: object[]): Promise<Verdict> {
  const options = { atOnce: 2, threads: 1, say: () => undefined };
  return await judge([merged(await runRustTests(programs, options))], runRustTest);
}

test("the same holds of a program in Rust", async () => {
  const once = program("rust-once", `if [ $n = 1 ]; then ${failing("late")}; fi; ${passing}`);
  expect(await verdictOn(once)).toMatchObject({ passed: 1, failed: 0, alone: [{ name: "a::b" }] });
  expect(await verdictOn(program("rust-always", failing("late")))).toMatchObject({
    failed: 1,
    alone: [],
  });
  const crash = program("rust-crash", "echo 'running 1 test'; kill -SEGV $$");
  const { failed, report } = await verdictOn(program("without", "echo 'running 0 tests'"), crash);
  expect({ failed, report: report.join() }).toEqual({
    failed: 1,
    report: expect.stringMatching(/^rust-crash ended with exit code/) as string,
  });
});

test("a program that is never over is red, and says which tests have no result", async () => {
  const hanging = program(
    "rust-hangs",
    `case "$*" in *--list*) printf 'a::ends: test\\na::hangs: test\\n\\n2 tests, 0 benchmarks\\n'; exit;; esac
    printf 'running 2 tests\\ntest a::ends ... ok\\n'; exec sleep 3600`,
  );
  const options = { atOnce: 1, threads: 1, say: () => undefined, limitMs: 2000 };
  const { failed, alone, report } = await judge(
    await runRustTests([hanging], options),
    runRustTest,
  );
  expect({ failed, alone }).toEqual({ failed: 1, alone: [] });
  expect(report.join()).toMatch(
    /^rust-hangs was not over after 2 s\. Without a result:[^]*a::hangs/,
  );
});

test("what speaks of safety is red at once", async () => {
  const ask = (): Promise<Result> => Promise.reject(new Error("asked again"));
  const failure = { where: "torture/run", name: "a run", text: "2 violations" };
  const verdict = await judge([{ passed: 9, skipped: 0, failures: [failure] }], ask);
  expect(verdict).toMatchObject({ failed: 1, alone: [] });
});

test.each([
  ["__test__/redis/mixed-fleet.test.ts", "both kinds", "expected ['x'] to equal []", true],
  ["__test__/redis/mixed-fleet.test.ts", "both kinds", "Test timed out in 120000ms", false],
  ["syncguard", "simulation::many_seeds", "seed 7: not explained", true],
  ["model/model", "states", "fewer states", true],
  ["torture/check", "leases", "Acquire → NetworkTimeout, Acquire → Acquired", true],
  ["torture/run", "a run", "violation: Acquire → NetworkTimeout, Acquire → Acquired", true],
  ["torture/run", "a run", "the takeover came too late", false],
  ["torture/matrix", "redis::waiters", "; 2 too late; 0 violations", false],
  ["torture/matrix", "redis::waiters", "; 2 too late; 10 violations", true],
  ["samples in Rust", "guard.rs (line 3)", "error[E0425]", true],
  ["syncguard/redis", "roles::a", "thread panicked at crates/syncguard/src/redis/mod.rs:7:5", true],
  ["syncguard", "a::tests::b", "panicked at crates/syncguard/src/redis/tests.rs:7:5", false],
  ["syncguard", "a::tests::b", "panicked at crates/syncguard/src/waiting/tests/a.rs:7:5", false],
  ["__test__/unit/a.test.ts", "b", "LockError: the native core panicked; please report", true],
  ["syncguard/behavior", "redis::concurrency::c", "assertion failed: two holders", true],
  ["syncguard/redis", "failovers::a", "two have held it: Seen { lost: None }", true],
  ["syncguard/redis_cluster", "failover::a", "two have held it: Seen { lost: None }", true],
  ["syncguard/redis", "failovers::a", "told too late: Seen { overlap: 1.5s }", false],
  ["__test__/cli/exec.test.ts", "runs", "expected 1 to be 2", false],
])("of %s, %s: %s is final: %s", (where, name, text, final) => {
  expect(isFinal({ where, name, text })).toBe(final);
});

test("more than a few do not fail by chance: none is asked again", async () => {
  const failures = Array.from({ length: MOST + 1 }, (_, number) => ({
    ...{ where: "a.test.ts", name: `${number}`, text: "late" },
  }));
  const ask = (): Promise<Result> => Promise.reject(new Error("asked again"));
  const verdict = await judge([{ passed: 9, skipped: 0, failures }], ask);
  expect(verdict).toMatchObject({ passed: 9, failed: MOST + 1, alone: [] });
});

test("nothing executed, and a test that is left out, are red", async () => {
  const ask = (): Promise<Result> => Promise.reject(new Error("asked again"));
  expect(await judge([{ passed: 0, skipped: 0, failures: [] }], ask)).toMatchObject({ failed: 1 });
  expect(await judge([{ passed: 3, skipped: 1, failures: [] }], ask)).toMatchObject({ failed: 1 });
  expect(await judge([{ passed: 3, skipped: 0, failures: [] }], ask)).toMatchObject({ failed: 0 });
});
