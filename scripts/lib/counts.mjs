// What a runner has executed, from what it printed or wrote: `{ passed, skipped, failures, broken }`. A failure is
// `{ where, name, text }`, with the program that has the test if it is one of Rust's; `broken` says why a runner has no result.

/** Reads the lines of libtest and libtest-mimic, or of several of them. */
export function cargoResult({ code, output }, program) {
  const result = { passed: 0, skipped: 0, failures: [] };
  let wanted = 0;
  let failed = 0;
  for (const [, number] of output.matchAll(/^running (\d+) tests?$/gm)) wanted += Number(number);
  const ends = output.matchAll(/^test result: \S+ (\d+) passed; (\d+) failed; (\d+) ignored;/gm);
  for (const [, passed, wrong, ignored] of ends) {
    result.passed += Number(passed);
    result.skipped += Number(ignored);
    failed += Number(wrong);
  }
  // What a test printed is between its name and that of the next one, or the list of all.
  const section = /^---- (.+?)(?: stdout)? ----\n([^]*?)\n(?=---- |failures:)/gm;
  for (const [, name, text] of output.matchAll(section)) {
    result.failures.push({ where: program.name, name, text: text.trim(), program });
  }
  const executed = result.passed + result.skipped + failed;
  if (executed < wanted || result.failures.length < failed || (code !== 0 && failed === 0)) {
    const said = output.trimEnd().split("\n").slice(-40).join("\n");
    result.broken = `${program.name} ended with exit code ${code}, ${executed} of ${wanted} tests executed\n${said}`;
  }
  return result;
}

/** Several results as one. */
export function merged(results) {
  const broken = results.flatMap((result) => result.broken ?? []);
  return {
    passed: results.reduce((sum, { passed }) => sum + passed, 0),
    skipped: results.reduce((sum, { skipped }) => sum + skipped, 0),
    failures: results.flatMap(({ failures }) => failures),
    ...(broken.length > 0 ? { broken: broken.join("\n\n") } : {}),
  };
}

/**
 * Reads what vitest-report.mjs has written. A file that did not even load, or whose hooks failed, is one failure without a name,
 * whatever became of its tests.
 */
export function vitestResult({ code, report }) {
  if (report === undefined) {
    return {
      passed: 0,
      skipped: 0,
      failures: [],
      broken: `vitest ended with exit code ${code}, without a report`,
    };
  }
  const { files, errors } = report;
  const tests = report.tests.filter((test) => files.every(({ where }) => where !== test.where));
  const failures = [
    ...files.map(({ where, text }) => ({ where, text })),
    ...tests
      .filter(({ state }) => state === "failed")
      .map(({ where, name, text }) => ({ where, name, text })),
  ];
  const result = {
    passed: tests.filter(({ state }) => state === "passed").length,
    skipped: tests.filter(({ state }) => state === "skipped").length,
    failures,
  };
  // A test that never came to an end is in neither state: its worker has ended before.
  const lost = tests.filter(({ state }) => state === "pending").length;
  if (errors.length > 0 || lost > 0 || (code !== 0 && failures.length === 0)) {
    result.broken = [
      `vitest ended with exit code ${code}, ${lost} tests without a result`,
      ...errors,
    ].join("\n");
  }
  return result;
}
