// On what was measured.

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { arch, cpus, release, totalmem, type } from "node:os";
import { dirname, join } from "node:path";
import { program } from "../postgres/server.mjs";

const PACKAGES = ["syncguard", "ioredis", "redlock-universal", "redis-semaphore", "redlock", "pg", "@google-cloud/firestore", "autocannon"]; // prettier-ignore

export function machine() {
  return {
    cpu: cpus()[0]?.model ?? "unknown",
    cores: cpus().length,
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    system: `${type()} ${release()} ${arch()}`,
  };
}

/** What took part, by name. */
export function versions() {
  const said = (name, pattern) =>
    pattern.exec(execFileSync(name, ["--version"], { encoding: "utf8" }))?.[1] ?? "unknown";
  return {
    "Node.js": process.versions.node,
    Redis: said("redis-server", /v=([\d.]+)/),
    PostgreSQL: said(program("postgres"), /([\d.]+)/),
    ...Object.fromEntries(PACKAGES.map((name) => [name, versionOf(name)])),
  };
}

/** The version of a package, as this folder finds it. */
function versionOf(name) {
  const require = createRequire(import.meta.url);
  for (let folder = dirname(require.resolve(name)); ; folder = dirname(folder)) {
    try {
      const manifest = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
      if (manifest.name === name) return manifest.version.replace(/^v/, "");
    } catch (error) {
      if (error.code !== "ENOENT") throw error;
    }
    if (folder === dirname(folder)) throw new Error(`the package of ${name} is not there`);
  }
}
