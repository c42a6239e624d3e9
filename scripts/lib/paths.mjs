// Where things are. Builds go to a cache outside the clone, so that a fresh clone is warm at once.

import { existsSync, readdirSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

export const root = resolve(dirname(fileURLToPath(import.meta.url)), "../..");

export const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "syncguard");

/** Cargo's target folder: the user's, or one in the cache. */
export const target = process.env.CARGO_TARGET_DIR
  ? resolve(root, process.env.CARGO_TARGET_DIR)
  : join(cache, "target");

/** A program that npm installs for this project. */
export const bin = (name) => join(root, "node_modules", ".bin", name);

/** Tools that are installed for this project otherwise. */
export const tools = join(cache, "tools");

/** Folders with packages of their own, which tests and checks need. */
export const projects = ["bench/alternatives", "examples"].map((name) => join(root, name));

/** Folders that name packages which are kept outside of the clone: scripts/lib/fetched.mjs. */
export const runtimesProject = join(root, "__test__", "runtimes", "programs");
export const matrixProject = join(root, "__test__", "matrix", "programs");
export const shippingProject = join(root, "__test__", "package", "programs");
export const fetchedProjects = [runtimesProject, matrixProject, shippingProject];

/** This machine in napi's words, e.g. `linux-x64-gnu`. */
export const platform = platformName();

/** The built addon, in the folder of this platform's package. */
export const addon = join(root, "npm", platform, `syncguard.${platform}.node`);

function platformName() {
  const { platform: system, arch } = process;
  if (system === "linux") return `linux-${arch}-${isGlibc() ? "gnu" : "musl"}`;
  if (system === "win32") return `win32-${arch}-msvc`;
  return `${system}-${arch}`;
}

function isGlibc() {
  const { report } = process;
  const { excludeNetwork } = report;
  // The names of whom this process talks to would be looked up.
  report.excludeNetwork = true;
  try {
    return Boolean(report.getReport().header.glibcVersionRuntime);
  } finally {
    report.excludeNetwork = excludeNetwork;
  }
}

/** Every file under `folder` that `keep` wants, as absolute paths. */
export function filesUnder(folder, keep = () => true) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { recursive: true })
    .map((name) => join(folder, name))
    .filter((path) => keep(path) && statSync(path).isFile());
}
