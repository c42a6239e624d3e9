// Packages of npm that tests need and that are kept outside of the clone, because of their size. A folder of the tests has
// their package.json, with the lock file that pins them.

import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync } from "node:fs";
import { renameSync, rmSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { platform, tools } from "./paths.mjs";
import { must } from "./run.mjs";

/**
 * The packages that `source` names. `finish`, if given, is called with the folder once they are installed there, before they are
 * used: their own scripts do not run.
 */
export class FetchedPackages {
  #source;
  #finish;

  constructor(source, finish = () => {}) {
    this.#source = source;
    this.#finish = finish;
    const version = createHash("sha256")
      .update(readFileSync(join(source, "package-lock.json")))
      .digest("hex")
      .slice(0, 16);
    this.folder = join(tools, basename(dirname(source)), version);
  }

  /** Where a file of a package is, once `need` was called. */
  path(name, ...parts) {
    return join(this.folder, "node_modules", name, ...parts);
  }

  /** Makes sure that all of them are there. */
  async need() {
    const { dependencies } = JSON.parse(readFileSync(join(this.#source, "package.json"), "utf8"));
    const names = Object.keys(dependencies);
    const missing = names.find((name) => !existsSync(this.path(name)));
    if (missing === undefined) return;
    if (platform !== "linux-x64-gnu") {
      throw new Error(
        `no ${missing} is known for ${platform}: put the package at ${this.path(missing)}`,
      );
    }
    console.log(`fetching ${names.join(", ")}`);
    mkdirSync(dirname(this.folder), { recursive: true });
    // In one step, in case two runs fetch it at once.
    const draft = mkdtempSync(`${this.folder}.`);
    try {
      for (const name of ["package.json", "package-lock.json"]) {
        copyFileSync(join(this.#source, name), join(draft, name));
      }
      const args = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"];
      await must("npm", args, { quiet: true, cwd: draft });
      await this.#finish(draft);
      if (!existsSync(this.folder)) renameSync(draft, this.folder);
    } finally {
      rmSync(draft, { recursive: true, force: true });
    }
  }
}
