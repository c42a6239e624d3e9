// The JavaScript runtimes that are supported beside the one that runs the tests: programs in packages of npm, which
// __test__/runtimes/programs/package.json names.

import { FetchedPackages } from "./fetched.mjs";
import { runtimesProject } from "./paths.mjs";

const packages = new FetchedPackages(runtimesProject);

/** Programs by the names of their packages. */
const PROGRAMS = { "node-22": "bin/node", "node-24": "bin/node", deno: "deno" };

export const runtimeNames = Object.keys(PROGRAMS);

/** Where the program of a runtime is, once `needRuntimes` was called. */
export function runtime(name) {
  return packages.path(name, PROGRAMS[name]);
}

/** Makes sure that all of them are there. */
export async function needRuntimes() {
  await packages.need();
}
