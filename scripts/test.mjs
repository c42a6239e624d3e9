// npm test: installs, builds, gets the servers that suites need, and asks every property once. npm run test:all asks it on every
// transport, client, version and runtime, too: `scripts/lib/selection.mjs` says what is in which.
// What failed is asked once more, alone (scripts/lib/again.mjs). The last line adds up all runners: `N passed, N failed`.

import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { judge, title } from "./lib/again.mjs";
import { build, install, installProjects } from "./lib/build.mjs";
import { merged } from "./lib/counts.mjs";
import { cache } from "./lib/paths.mjs";
import { needMatrix } from "./lib/matrix.mjs";
import { exitOnSignals, main } from "./lib/run.mjs";
import { needRuntimes } from "./lib/runtimes.mjs";
import { buildRustTests, runRustSamples, runRustTest, runRustTests } from "./lib/rust-tests.mjs";
import { useScratch } from "./lib/scratch.mjs";
import { isSelected, selection } from "./lib/selection.mjs";
import { needServers } from "./lib/servers.mjs";
import { needShipping } from "./lib/shipping.mjs";
import { singleStores } from "./lib/single-stores.mjs";
import { withSources } from "./lib/sources.mjs";
import { runSteps } from "./lib/steps.mjs";
import { runVitest, runVitestTest } from "./lib/vitest.mjs";

// Tests wait for expiries and for servers, so both runners have more of them in hand than there are cores: these, beside the
// workers of vitest.config.mts.
const PROGRAMS_AT_ONCE = 2;
const THREADS = 3;

await main(async () => {
  if (process.argv[2] === "all") process.env.SYNCGUARD_TESTS = "all";
  exitOnSignals();
  const { programs, linted, remove } = await prepare();
  useScratch();
  try {
    const results = await runAll(programs);
    const { passed, failed, alone, report } = await judge([...results, ...linted], ask);
    for (const text of report) console.error(`\n${text}`);
    note(alone);
    console.log(`${passed} passed, ${failed} failed`);
    return failed === 0 ? 0 : 1;
  } finally {
    remove();
  }
});

async function prepare() {
  // First: npm empties the folder in which withSources() leaves its note.
  await install();
  const built = await withSources(async () => {
    await build();
    await installProjects();
    // With them the emulator of Firestore, which has tests of its own.
    const tests = await buildRustTests();
    return { ...tests, linted: selection() === "all" ? await lintSingleStores() : [] };
  });
  await needServers();
  if (selection() === "all") {
    await needMatrix();
    await needRuntimes();
    await needShipping();
  }
  return { ...built, programs: built.programs.filter(({ name }) => isSelected(name)) };
}

/** The results of the lints that take a build of their own each: those that failed. */
async function lintSingleStores() {
  const failed = await runSteps(singleStores);
  return failed.map((broken) => ({ passed: 0, skipped: 0, failures: [], broken }));
}

/** Both runners at once; what they print stays apart. */
async function runAll(programs) {
  const say = (line) => console.log(line);
  const rust = runRustTests(programs, { atOnce: PROGRAMS_AT_ONCE, threads: THREADS, say });
  const typescript = runVitest();
  const programsAndSamples = [...(await rust), await runRustSamples()];
  for (const { failures, broken, output } of [...programsAndSamples, await typescript]) {
    if (failures.length > 0 || broken) console.log(output);
  }
  return [merged(programsAndSamples), await typescript];
}

/** Runs a test that failed once more. */
async function ask(failure) {
  console.log(`asking once more, alone: ${title(failure)}`);
  const result = await (failure.program ? runRustTest(failure) : runVitestTest(failure));
  if (result.failures.length > 0 || result.broken) console.log(result.output);
  return result;
}

/** Nobody is to overlook what is shaky: it stands in the last lines, and in a file of the cache that grows. */
function note(alone) {
  if (alone.length === 0) return;
  const file = join(cache, "passed-only-alone.txt");
  console.log(`\npassed only when asked alone (${file}):`);
  for (const failure of alone) console.log(`  ${title(failure)}`);
  const date = new Date().toISOString();
  appendFileSync(file, alone.map((failure) => `${date} ${title(failure)}\n`).join(""));
}
