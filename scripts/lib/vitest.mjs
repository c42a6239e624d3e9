// The tests in TypeScript.

import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { vitestResult } from "./counts.mjs";
import { root, bin } from "./paths.mjs";
import { run } from "./run.mjs";

/** Nothing takes that long: each test has a limit of its own, but none that a thread which never lets go would keep. */
const LIMIT_MS = 60 * 60_000;

/** Runs the tests that the configuration in `cwd` selects, or those of them that `args` do; says nothing while it runs. */
export async function runVitest(args = [], cwd = root) {
  const folder = mkdtempSync(join(tmpdir(), "syncguard-vitest-"));
  try {
    const file = join(folder, "report.json");
    const reporters = [
      "--reporter=default",
      `--reporter=${join(root, "scripts", "lib", "vitest-report.mjs")}`,
    ];
    const options = { quiet: true, cwd, env: { SYNCGUARD_REPORT: file }, limitMs: LIMIT_MS };
    const { code, output } = await run(bin("vitest"), ["run", ...reporters, ...args], options);
    const report = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : undefined;
    return { ...vitestResult({ code, report }), output, report };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Runs one test, and nothing beside it; a file, if it has failed as a whole. */
export function runVitestTest({ where, name }, cwd) {
  if (name === undefined) return runVitest([where], cwd);
  return runVitest(
    [where, "--testNamePattern", `^${name.replace(/[$()*+.?[\\\]^{|}]/g, "\\$&")}$`],
    cwd,
  );
}
