// How many tests each runner executed, from what it printed or wrote.

/** Adds up the `test result:` lines of libtest, libtest-mimic and rustdoc. */
export function cargoCounts(output) {
  const counts = { passed: 0, failed: 0, skipped: 0 };
  const line = /^test result: \S+ (\d+) passed; (\d+) failed; (\d+) ignored;/gm;
  for (const [, passed, failed, ignored] of output.matchAll(line)) {
    counts.passed += Number(passed);
    counts.failed += Number(failed);
    counts.skipped += Number(ignored);
  }
  return counts;
}

/** Reads vitest's JSON report; a file that did not even load is one failure. */
export function vitestCounts(report) {
  const broken = report.testResults.filter(
    (file) => file.status === "failed" && file.assertionResults.every((t) => t.status !== "failed"),
  );
  return {
    passed: report.numPassedTests,
    failed: report.numFailedTests + broken.length,
    skipped: report.numPendingTests + report.numTodoTests,
  };
}

/**
 * What is wrong with a runner's result, or undefined. A runner that executed nothing has failed, and
 * so has one that left tests out.
 */
export function complaint({ code, counts }) {
  if (counts.failed > 0) return `${counts.failed} failed`;
  if (code !== 0) return `exit code ${code}`;
  if (counts.passed === 0) return "executed no test";
  if (counts.skipped > 0) return `${counts.skipped} skipped`;
  return undefined;
}
