// Programs that come from Debian packages: installed when we may, named when we may not.

import { existsSync, rmSync, writeFileSync } from "node:fs";
import { must, run, which } from "./run.mjs";

/**
 * Makes sure that programs are there. `needs` is a list of `{ command, packages, why }`; `command`
 * may be a list of which one is enough.
 */
export async function needPrograms(needs) {
  const missing = needs.filter(({ command }) => ![command].flat().some(which));
  if (missing.length === 0) return;
  const packages = [...new Set(missing.flatMap((need) => need.packages))];
  if (which("apt-get") && process.getuid?.() === 0) {
    console.log(`installing ${packages.join(" ")}`);
    const env = { DEBIAN_FRONTEND: "noninteractive" };
    await run("apt-get", ["update", "-qq"], { quiet: true });
    const args = ["install", "-y", "-qq", "--no-install-recommends", ...packages];
    await withoutServices(() => must("apt-get", args, { quiet: true, env }));
  }
  const still = missing.filter(({ command }) => ![command].flat().some(which));
  if (still.length === 0) return;
  throw new Error(
    [
      "programs are missing:",
      ...still.map((need) => `  ${[need.command].flat().join(" or ")}: ${need.why}`),
      `On Debian or Ubuntu: sudo apt-get install ${packages.join(" ")}`,
    ].join("\n"),
  );
}

// Debian asks this file whether a package may start its services: suites start servers of their own.
const POLICY = "/usr/sbin/policy-rc.d";

async function withoutServices(install) {
  if (existsSync(POLICY)) return install();
  writeFileSync(POLICY, "#!/bin/sh\nexit 101\n", { mode: 0o755 });
  try {
    return await install();
  } finally {
    rmSync(POLICY, { force: true });
  }
}
