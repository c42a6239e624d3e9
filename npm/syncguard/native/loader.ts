/** Finds the native addon. */

import { closeSync, existsSync, openSync, readSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { LockError } from "./errors.js";

/** What was tried in vain. */
export type Failure = { where: string; error: unknown };

/**
 * Loads the addon from SYNCGUARD_NATIVE_PATH, from a build in this repository, or from the package for this platform.
 * When none loads, the error says why for each, in the loader's own words.
 */
export function loadAddon(): unknown {
  const { platform, arch } = process;
  const names = platformNames(platform, arch, platform === "linux" ? startOfProgram() : "");
  const failures: Failure[] = [];
  for (const [where, load] of candidates(names)) {
    try {
      return load();
    } catch (error) {
      failures.push({ where, error });
    }
  }
  throw notLoaded(names[0] as string, failures, packagedPlatforms());
}

function candidates(names: readonly string[]): [string, () => unknown][] {
  const given = process.env.SYNCGUARD_NATIVE_PATH;
  if (given) return [[given, () => requireFile(given)]];
  return names.flatMap((name): [string, () => unknown][] => {
    const found: [string, () => unknown][] = [
      [`syncguard-${name}`, () => requirePackage(`syncguard-${name}`)],
    ];
    // In a bundle of ES modules there is no such variable.
    const folder = typeof __dirname === "string" ? __dirname : undefined;
    if (folder === undefined) return found;
    const built = join(folder, "..", "..", "npm", name, `syncguard.${name}.node`);
    return existsSync(built) ? [[built, () => requireFile(built)], ...found] : found;
  });
}

/** In a way that bundlers leave alone: they cannot know the path. */
function requireFile(path: string): unknown {
  const absolute = resolve(path);
  return createRequire(absolute)(absolute);
}

/**
 * With literal names, so that bundlers and tools that trace files see what is needed; within `try`, so that they
 * take those that are not installed for what they are: optional.
 */
function requirePackage(name: string): unknown {
  try {
    switch (name) {
      case "syncguard-darwin-arm64":
        return require("syncguard-darwin-arm64");
      case "syncguard-darwin-x64":
        return require("syncguard-darwin-x64");
      case "syncguard-linux-arm64-gnu":
        return require("syncguard-linux-arm64-gnu");
      case "syncguard-linux-arm64-musl":
        return require("syncguard-linux-arm64-musl");
      case "syncguard-linux-x64-gnu":
        return require("syncguard-linux-x64-gnu");
      case "syncguard-linux-x64-musl":
        return require("syncguard-linux-x64-musl");
      case "syncguard-win32-arm64-msvc":
        return require("syncguard-win32-arm64-msvc");
      case "syncguard-win32-x64-msvc":
        return require("syncguard-win32-x64-msvc");
    }
  } catch (error) {
    // Whoever asked decides what it means.
    throw error;
  }
  // Built by its user.
  return createRequire(resolve("package.json"))(name);
}

/**
 * The platform in napi's words. On Linux it depends on the C library that this program, of which `start` is the
 * beginning, is linked against; both are tried where that cannot be seen.
 */
export function platformNames(platform: string, arch: string, start: string): string[] {
  if (platform === "win32") return [`${platform}-${arch}-msvc`];
  if (platform !== "linux") return [`${platform}-${arch}`];
  const libraries = start.includes("/ld-musl-")
    ? ["musl"]
    : start.includes("/ld-linux")
      ? ["gnu"]
      : ["gnu", "musl"];
  return libraries.map((library) => `${platform}-${arch}-${library}`);
}

/** The first bytes of this program, where the path of its dynamic loader is. */
function startOfProgram(): string {
  try {
    const file = openSync(process.execPath, "r");
    try {
      const bytes = Buffer.alloc(4096);
      return bytes.toString("latin1", 0, readSync(file, bytes));
    } finally {
      closeSync(file);
    }
  } catch {
    return "";
  }
}

/** The platforms that have a package; none in the repository, where they are built. */
function packagedPlatforms(): string[] {
  try {
    const { optionalDependencies } = require("../../package.json") as {
      optionalDependencies?: Record<string, string>;
    };
    return Object.keys(optionalDependencies ?? {}).map((name) => name.replace("syncguard-", ""));
  } catch {
    return [];
  }
}

/** Why there is no addon, and what to do; `packaged` are the platforms that have a package. */
export function notLoaded(
  platform: string,
  failures: readonly Failure[],
  packaged: readonly string[],
): LockError {
  const reasons = failures.map(({ where, error }) => {
    const [line] = String(error instanceof Error ? error.message : error).split("\n");
    return `\n  ${where}: ${line}`;
  });
  return new LockError(
    "Internal",
    `The native part of syncguard for ${platform} could not be loaded.` +
      (failures.every(isMissingPackage) ? advice(platform, packaged) : "") +
      reasons.join(""),
    { cause: failures.at(-1)?.error },
  );
}

/** Not one that is there and cannot be loaded, and not a path that somebody gave. */
function isMissingPackage({ where, error }: Failure): boolean {
  const { code } = (error ?? {}) as { code?: unknown };
  return code === "MODULE_NOT_FOUND" && where.startsWith("syncguard-");
}

function advice(platform: string, packaged: readonly string[]): string {
  if (packaged.includes(platform)) {
    return (
      ` Its package, syncguard-${platform}, is an optional dependency and is not installed:` +
      " was it left out, or the packages installed on another platform?"
    );
  }
  const others =
    packaged.length === 0 ? "" : ` There are binaries for ${packaged.join(", ")} only.`;
  return (
    `${others} Build it on this platform: with Rust and a C compiler, "npm run pack packages" in a clone of` +
    " syncguard's repository makes the packages to install, as its README.md says."
  );
}
