// What must not be in the repository.

import { homedir } from "node:os";
import { sep } from "node:path";
import { root } from "./paths.mjs";
import { must, run } from "./run.mjs";

const BUILD_OUTPUT = [
  ...["*.node", "*.tgz", "*.so", "*.dylib", "*.dll"],
  ...["node_modules", "target", "dist"].map((folder) => `:(glob)**/${folder}/**`),
];

const FOREIGN_PATHS = [
  // Outside of the project, and of one machine.
  String.raw`\.\./shared\b`,
  String.raw`(^|[\s"'${"`"}(=:])/(work|root)/\w`,
  // Where this is being checked: the machine of whoever wrote it, or CI's.
  ...[homedir(), root].filter((path) => path.length > 1).map((path) => `\\Q${path}${sep}\\E`),
];

/** Fails when a tracked file is build output or names a path of the machine it was written on. */
export async function checkTrackedFiles() {
  const built = await must("git", ["ls-files", "--", ...BUILD_OUTPUT], { quiet: true });
  if (built.output !== "") throw new Error(`build output:\n${built.output}`);
  const args = ["grep", "-nIP", ...FOREIGN_PATHS.flatMap((path) => ["-e", path])];
  const { code, output } = await run("git", args, { quiet: true });
  // As grep does: 1 says that nothing was found.
  if (code !== 1) throw new Error(output);
}
