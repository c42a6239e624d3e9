// What `npm test` makes of its runners' reports: how many tests there were, and which have failed.

import { expect, test } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as counts from "../../scripts/lib/counts.mjs";

type Failure = { where: string; name?: string; text: string; program?: object };
type Result = { passed: number; skipped: number; failures: Failure[]; broken?: string };

const { cargoResult, vitestResult } = counts as {
  cargoResult: (ended: { code: number; output: string }, program: { name: string }) => Result;
  vitestResult: (ended: { code: number; report?: object }) => Result;
};

const program = { name: "syncguard" };

const libtest = `
running 3 tests
test undo::tests::first ... ok
test undo::tests::second ... FAILED
test undo::tests::third ... FAILED

failures:

---- undo::tests::second stdout ----
thread 'undo::tests::second' panicked at undo.rs:3:5:
left behind

---- undo::tests::third stdout ----
another one

failures:
    undo::tests::second
    undo::tests::third

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

running 1 test
test redis::acquire ... FAILED

failures:

---- redis::acquire ----
no answer

failures:
    redis::acquire

test result: FAILED. 4 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.00s
`;

test("cargo's tests are added up, and those that failed are named with what they said", () => {
  const where = "syncguard";
  expect(cargoResult({ code: 101, output: libtest }, program)).toEqual({
    passed: 5,
    skipped: 1,
    failures: [
      {
        ...{ where, program, name: "undo::tests::second" },
        text: "thread 'undo::tests::second' panicked at undo.rs:3:5:\nleft behind",
      },
      { where, program, name: "undo::tests::third", text: "another one" },
      { where, program, name: "redis::acquire", text: "no answer" },
    ],
  });
});

test("a program of tests that does not come to its end is broken", () => {
  const crashed = "running 2 tests\ntest one ... ok\nprogram ended by SIGSEGV\n";
  expect(cargoResult({ code: 1, output: crashed }, program)).toMatchObject({
    passed: 0,
    broken: expect.stringMatching(
      /^syncguard ended with exit code 1, 0 of 2 tests executed\n/,
    ) as string,
  });
  const ended = "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured\n";
  expect(cargoResult({ code: 0, output: ended }, program)).not.toHaveProperty("broken");
  expect(cargoResult({ code: 7, output: ended }, program)).toHaveProperty("broken");
});

test("so are vitest's, and a file that did not load, or whose hook failed, is one failure", () => {
  const tests = [
    { where: "a.test.ts", name: "one", state: "passed", text: "" },
    { where: "a.test.ts", name: "two", state: "failed", text: "expected 1 to be 2" },
    { where: "a.test.ts", name: "three", state: "skipped", text: "" },
    { where: "b.test.ts", name: "four", state: "skipped", text: "" },
  ];
  const files = [{ where: "b.test.ts", text: "no server" }];
  expect(vitestResult({ code: 1, report: { tests, files, errors: [] } })).toEqual({
    passed: 1,
    skipped: 1,
    failures: [
      { where: "b.test.ts", text: "no server" },
      { where: "a.test.ts", name: "two", text: "expected 1 to be 2" },
    ],
  });
});

test("a run of vitest is broken by an error outside of tests, by a lost worker, and without a report", () => {
  const passed = { where: "a.test.ts", name: "one", state: "passed", text: "" };
  const report = { tests: [passed], files: [], errors: [] };
  expect(vitestResult({ code: 0, report })).not.toHaveProperty("broken");
  const lost = { ...report, tests: [passed, { ...passed, state: "pending" }] };
  const unhandled = { ...report, errors: ["Error: Worker exited unexpectedly"] };
  for (const ended of [{ report: lost }, { report: unhandled }, { report }, {}]) {
    expect(vitestResult({ code: 1, ...ended })).toHaveProperty("broken");
  }
});
