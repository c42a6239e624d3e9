// How many tests each runner executed and which of them failed, from what it printed or wrote.

/** Adds up the `test result:` lines of libtest, libtest-mimic and rustdoc. */
export function cargoCounts(output) {
  const counts = { passed: 0, failed: 0, skipped: 0, failures: [] };
  const line = /^test result: \S+ (\d+) passed; (\d+) failed; (\d+) ignored;/gm;
  for (const [, passed, failed, ignored] of output.matchAll(line)) {
    counts.passed += Number(passed);
    counts.failed += Number(failed);
    counts.skipped += Number(ignored);
  }
  // What a test printed is between its name and that of the next one, or the list of all.
  const section = /^---- (.+?)(?: stdout)? ----\n([^]*?)\n(?=---- |failures:)/gm;
  for (const [, name, text] of output.matchAll(section)) {
    counts.failures.push(`${name}\n${text.trim()}`);
  }
  return counts;
}

/** Reads vitest's JSON report; a file that did not even load is one failure. */
export function vitestCounts(report) {
  const broken = report.testResults.filter(
    (file) => file.status === "failed" && file.assertionResults.every((t) => t.status !== "failed"),
  );
  const failures = report.testResults.flatMap((file) =>
    file.assertionResults
      .filter((test) => test.status === "failed")
      .map((test) => `${file.name}: ${test.fullName}\n${test.failureMessages.join("\n")}`),
  );
  return {
    passed: report.numPassedTests,
    failed: report.numFailedTests + broken.length,
    skipped: report.numPendingTests + report.numTodoTests,
    failures: [...broken.map((file) => `${file.name}\n${file.message}`), ...failures],
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
