// What `npm test` makes of its runners' reports: how many tests there were, and which have failed.

import { expect, test } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as counts from "../../scripts/lib/counts.mjs";

interface Counts {
  passed: number;
  failed: number;
  skipped: number;
  failures?: string[];
}

const { cargoCounts, vitestCounts, complaint } = counts as {
  cargoCounts: (output: string) => Counts;
  vitestCounts: (report: object) => Counts;
  complaint: (result: { code: number; counts: Counts }) => string | undefined;
};

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
  expect(cargoCounts(libtest)).toEqual({
    passed: 5,
    failed: 3,
    skipped: 1,
    failures: [
      "undo::tests::second\nthread 'undo::tests::second' panicked at undo.rs:3:5:\nleft behind",
      "undo::tests::third\nanother one",
      "redis::acquire\nno answer",
    ],
  });
});

test("so are vitest's, and a file that did not load is a failure", () => {
  const report = {
    numPassedTests: 1,
    numFailedTests: 1,
    numPendingTests: 0,
    numTodoTests: 0,
    testResults: [
      {
        name: "a.test.ts",
        status: "failed",
        assertionResults: [
          { status: "passed", fullName: "one", failureMessages: [] },
          { status: "failed", fullName: "two", failureMessages: ["expected 1 to be 2"] },
        ],
      },
      { name: "b.test.ts", status: "failed", message: "no such module", assertionResults: [] },
    ],
  };
  expect(vitestCounts(report)).toEqual({
    passed: 1,
    failed: 2,
    skipped: 0,
    failures: ["b.test.ts\nno such module", "a.test.ts: two\nexpected 1 to be 2"],
  });
});

test("a runner that executed nothing, or left a test out, has failed", () => {
  expect(complaint({ code: 0, counts: { passed: 3, failed: 0, skipped: 0 } })).toBeUndefined();
  expect(complaint({ code: 0, counts: { passed: 0, failed: 0, skipped: 0 } })).toBe(
    "executed no test",
  );
  expect(complaint({ code: 0, counts: { passed: 3, failed: 0, skipped: 1 } })).toBe("1 skipped");
  expect(complaint({ code: 1, counts: { passed: 3, failed: 0, skipped: 0 } })).toBe("exit code 1");
  expect(complaint({ code: 1, counts: { passed: 3, failed: 2, skipped: 0 } })).toBe("2 failed");
});
