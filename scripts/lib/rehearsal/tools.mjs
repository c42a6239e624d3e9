// The registry of a rehearsal: a package of npm in the cache, whose version is named here.

import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { tools } from "../paths.mjs";
import { must } from "../run.mjs";

const manifest = {
  private: true,
  dependencies: {
    // Later ones ask for Node.js 22.
    verdaccio: "6.8.0",
  },
  // Verdaccio asks for a tag in the place of a version, which registries that copy npm's do not have.
  overrides: { "node-fetch": "2.7.0" },
};

const text = JSON.stringify(manifest);
const folder = join(
  tools,
  "rehearsal",
  createHash("sha256").update(text).digest("hex").slice(0, 16),
);

/** A file of these packages, once `needTools` was called. */
export const tool = (path) => join(folder, "node_modules", path);

/** Makes sure that all of them are there. */
export async function needTools() {
  if (existsSync(folder)) return;
  console.log(`fetching ${Object.keys(manifest.dependencies).join(", ")}`);
  mkdirSync(join(folder, ".."), { recursive: true });
  // In one step, in case two runs fetch it at once.
  const draft = mkdtempSync(`${folder}.`);
  try {
    writeFileSync(join(draft, "package.json"), text);
    const args = ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    await must("npm", args, { quiet: true, cwd: draft });
    if (!existsSync(folder)) renameSync(draft, folder);
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
}
