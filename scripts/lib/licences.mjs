// Licences, banned crates, sources and known vulnerabilities of what this is built from.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fetchedProjects, projects, root, tools } from "./paths.mjs";
import { must, run, which } from "./run.mjs";
import { quietly } from "./steps.mjs";

const DENY_VERSION = "0.20.2";

// All are tools of this repository: the published package depends on nothing.
const NPM_LICENCES = new Set([
  ...["0BSD", "Apache-2.0", "BlueOak-1.0.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0"],
  ...["ISC", "MIT", "Python-2.0", "Unlicense"],
]);
// Programs that are run as they are, and of which nothing gets into what is built.
const NPM_EXCEPTIONS = new Map([
  // Of Next.js.
  ["@img/sharp-libvips", "LGPL-3.0-or-later"],
  ["@img/sharp-wasm32", "Apache-2.0 AND LGPL-3.0-or-later AND MIT"],
  ["@img/sharp-win32", "Apache-2.0 AND LGPL-3.0-or-later"],
  ["axe-core", "MPL-2.0"],
  ["caniuse-lite", "CC-BY-4.0"],
  ["lightningcss", "MPL-2.0"],
  ["rollup-plugin-dts", "LGPL-3.0-only"],
]);

/** The licences of the npm packages of this project, and of those that tests fetch. */
export function allNpmLicences() {
  const locks = [root, ...fetchedProjects].map((folder) => join(folder, "package-lock.json"));
  return locks.map((lock) => npmLicences(readFileSync(lock, "utf8"))).join(", ");
}

/** The licences of npm packages, as a lock file has them. */
export function npmLicences(text) {
  const packages = Object.entries(JSON.parse(text).packages).filter(([path]) => path !== "");
  const faults = packages.flatMap(([path, { license }]) => {
    const name = path.split("node_modules/").at(-1);
    // Its builds for platforms are packages of their own.
    const excepted = [...NPM_EXCEPTIONS].some(
      ([tool, theirs]) => license === theirs && (name === tool || name.startsWith(`${tool}-`)),
    );
    return NPM_LICENCES.has(license) || excepted ? [] : [`${name}: ${license ?? "no licence"}`];
  });
  if (faults.length > 0) throw new Error(faults.join("\n"));
  return `${packages.length} packages`;
}

/** Licences, bans and sources always; advisories when their database can be fetched. */
export async function cargoDeny() {
  const deny = await denyProgram();
  await quietly(deny, ["--locked", "--all-features", "check", "licenses", "bans", "sources"]);
  const { code, output } = await run(deny, ["--locked", "--all-features", "check", "advisories"], {
    quiet: true,
  });
  if (code === 0) return "licences, bans, sources, advisories";
  if (
    /failed to (fetch|acquire|open|load)/i.test(output) &&
    !/advisories (FAILED|ok)/.test(output)
  ) {
    return "licences, bans, sources; NOT advisories: their database cannot be reached from here";
  }
  throw new Error(output.trimEnd());
}

/** Known vulnerabilities of the npm packages, when the registry answers that question. */
export async function npmAudit() {
  let packages = 0;
  for (const cwd of [root, ...projects, ...fetchedProjects]) {
    const { code, output } = await run("npm", ["audit", "--json"], { quiet: true, cwd });
    const report = parse(output);
    const found = report?.metadata?.vulnerabilities;
    if (!found) return "NOT done: the registry does not answer audits from here";
    if (code !== 0) {
      const { output: readable } = await run("npm", ["audit"], { quiet: true, cwd });
      throw new Error(`${cwd}\n${readable.trimEnd()}`);
    }
    packages += report.metadata.dependencies?.total ?? 0;
  }
  return `${packages} packages`;
}

async function denyProgram() {
  const own = join(tools, "bin", process.platform === "win32" ? "cargo-deny.exe" : "cargo-deny");
  if (existsSync(own)) return own;
  const installed = which("cargo-deny");
  if (installed) return installed;
  console.log("installing cargo-deny (some minutes, once)");
  const args = ["install", "cargo-deny", "--version", DENY_VERSION, "--locked", "--root", tools];
  await must("cargo", args, { quiet: true });
  return own;
}

// npm may print warnings around its JSON.
function parse(output) {
  const start = output.indexOf("{");
  const end = output.lastIndexOf("}");
  try {
    return JSON.parse(output.slice(start, end + 1));
  } catch {
    return undefined;
  }
}
