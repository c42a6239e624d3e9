// Licences, banned crates, sources and known vulnerabilities of what this is built from.

import { existsSync } from "node:fs";
import { join } from "node:path";
import { tools } from "./paths.mjs";
import { must, run, which } from "./run.mjs";
import { quietly } from "./steps.mjs";

const DENY_VERSION = "0.20.2";

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
  const { code, output } = await run("npm", ["audit", "--json"], { quiet: true });
  const report = parse(output);
  const found = report?.metadata?.vulnerabilities;
  if (!found) return "NOT done: the registry does not answer audits from here";
  if (code === 0) return `${report.metadata.dependencies?.total ?? "all"} packages`;
  const { output: readable } = await run("npm", ["audit"], { quiet: true });
  throw new Error(readable.trimEnd());
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
