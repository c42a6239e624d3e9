// The JavaScript runtimes that are supported beside the one that runs the tests: programs in packages of npm, which
// __test__/runtimes/programs/package.json names. They are kept outside of the clone because each has about 100 MB.

import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync } from "node:fs";
import { renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { platform, root, tools } from "./paths.mjs";
import { must } from "./run.mjs";

const source = join(root, "__test__", "runtimes", "programs");
const version = createHash("sha256")
  .update(readFileSync(join(source, "package-lock.json")))
  .digest("hex")
  .slice(0, 16);
const folder = join(tools, "runtimes", version);

/** Programs by the names of their packages. */
const PROGRAMS = { "node-22": "bin/node", "node-24": "bin/node", deno: "deno" };

export const runtimeNames = Object.keys(PROGRAMS);

/** Where the program of a runtime is, once `needRuntimes` was called. */
export function runtime(name) {
  return join(folder, "node_modules", name, PROGRAMS[name]);
}

/** Makes sure that all of them are there. */
export async function needRuntimes() {
  const missing = runtimeNames.find((name) => !existsSync(runtime(name)));
  if (missing === undefined) return;
  if (platform !== "linux-x64-gnu") {
    throw new Error(
      `no ${missing} is known for ${platform}: put the program at ${runtime(missing)}`,
    );
  }
  console.log(`fetching ${runtimeNames.join(", ")}`);
  mkdirSync(join(folder, ".."), { recursive: true });
  // In one step, in case two runs fetch it at once.
  const draft = mkdtempSync(`${folder}.`);
  try {
    for (const name of ["package.json", "package-lock.json"]) {
      copyFileSync(join(source, name), join(draft, name));
    }
    const args = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"];
    await must("npm", args, { quiet: true, cwd: draft });
    if (!existsSync(folder)) renameSync(draft, folder);
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
}
