// npm test: installs, builds, gets the servers that suites need, runs every test.
// The last line adds up all runners: `N passed, N failed`.

import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build, buildEmulator, installProjects } from "./lib/build.mjs";
import { cargoCounts, complaint, vitestCounts } from "./lib/counts.mjs";
import { main, run } from "./lib/run.mjs";
import { needRuntimes } from "./lib/runtimes.mjs";
import { needServers } from "./lib/servers.mjs";

// Most of the time goes into waiting, for expiries and for servers, so both runners go at the same time, and have
// more tests in hand than there are cores (maxWorkers in vitest.config.mts).
const TESTS_AT_ONCE = 4;
const CARGO_TEST = ["test", "--workspace", "--all-features", "--locked"];

await main(async () => {
  await build();
  await installProjects();
  await needServers();
  await needRuntimes();
  // So that both start at the same time. If something cannot be built, the run itself says so, and fails.
  await run("cargo", [...CARGO_TEST, "--no-run"]);
  await buildEmulator();
  const runners = [
    { name: "cargo test", result: cargoTest() },
    { name: "vitest", result: vitest() },
  ];
  const total = { passed: 0, failed: 0 };
  const complaints = [];
  for (const { name, result } of runners) {
    console.log(`\n── ${name} ──`);
    const { code, counts, report = "" } = await result;
    process.stdout.write(report);
    const wrong = complaint({ code, counts });
    // The failures once more at the end, where they are found among thousands of lines.
    if (wrong) complaints.push(`${name}: ${wrong}`, ...counts.failures);
    total.passed += counts.passed;
    // A runner that broke without naming a test still counts as a failure.
    total.failed += counts.failed || (wrong ? 1 : 0);
  }
  for (const text of complaints) console.error(text);
  console.log(`${total.passed} passed, ${total.failed} failed`);
  return complaints.length === 0 ? 0 : 1;
});

async function cargoTest() {
  const args = [...CARGO_TEST, "--no-fail-fast", "--", `--test-threads=${TESTS_AT_ONCE}`];
  const { code, output } = await run("cargo", args);
  return { code, counts: cargoCounts(output) };
}

/** Says nothing while it runs, beside the other one: what it has to say is the `report`. */
async function vitest() {
  const folder = mkdtempSync(join(tmpdir(), "syncguard-vitest-"));
  try {
    const file = join(folder, "report.json");
    const reporters = ["--reporter=default", "--reporter=json", `--outputFile.json=${file}`];
    const args = ["--no", "vitest", "run", ...reporters];
    const { code, output } = await run("npx", args, { quiet: true });
    const counts = existsSync(file)
      ? vitestCounts(JSON.parse(readFileSync(file, "utf8")))
      : { passed: 0, failed: 0, skipped: 0, failures: [] };
    return { code, counts, report: output };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
