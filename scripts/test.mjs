// npm test: installs, builds, gets the servers that suites need, runs every test.
// The last line adds up all runners: `N passed, N failed`.

import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build, buildEmulator } from "./lib/build.mjs";
import { cargoCounts, complaint, vitestCounts } from "./lib/counts.mjs";
import { main, run } from "./lib/run.mjs";
import { needServers } from "./lib/servers.mjs";

// Most of the time goes into waiting, for expiries and for servers, so more tests of Rust than cores can run.
const TESTS_AT_ONCE = 6;

const runners = [
  { name: "cargo test", start: cargoTest },
  { name: "vitest", start: vitest },
];

await main(async () => {
  await build();
  await needServers();
  const total = { passed: 0, failed: 0 };
  const complaints = [];
  for (const { name, start } of runners) {
    console.log(`\n── ${name} ──`);
    const result = await start();
    const wrong = complaint(result);
    if (wrong) complaints.push(`${name}: ${wrong}`);
    total.passed += result.counts.passed;
    // A runner that broke without naming a test still counts as a failure.
    total.failed += result.counts.failed || (wrong ? 1 : 0);
  }
  for (const text of complaints) console.error(text);
  console.log(`${total.passed} passed, ${total.failed} failed`);
  return complaints.length === 0 ? 0 : 1;
});

async function cargoTest() {
  const args = ["test", "--workspace", "--all-features", "--locked", "--no-fail-fast"];
  const { code, output } = await run("cargo", [...args, "--", `--test-threads=${TESTS_AT_ONCE}`]);
  return { code, counts: cargoCounts(output) };
}

async function vitest() {
  await buildEmulator();
  const folder = mkdtempSync(join(tmpdir(), "syncguard-vitest-"));
  try {
    const file = join(folder, "report.json");
    const args = ["vitest", "run", "--reporter=default", "--reporter=json"];
    const { code } = await run("npx", ["--no", ...args, `--outputFile.json=${file}`]);
    const counts = existsSync(file)
      ? vitestCounts(JSON.parse(readFileSync(file, "utf8")))
      : { passed: 0, failed: 0, skipped: 0 };
    return { code, counts };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
