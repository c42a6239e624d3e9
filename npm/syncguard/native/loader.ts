/** Finds the native addon. */

import { closeSync, existsSync, openSync, readSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { LockError } from "./errors.js";
import { PACKAGED } from "./packaged.js";

/** A failed attempt to load the addon. */
export type Failure = { where: string; error: unknown };

/**
 * Loads the addon from SYNCGUARD_NATIVE_PATH, from a build in this repository, or from the package for this platform.
 * If none can be loaded, the error gives the reason for each, in Node's own words.
 */
export function loadAddon(): unknown {
  try {
    return loadFirst();
  } catch (error) {
    throw isRefusedByDeno(error) ? missesPermission(error) : error;
  }
}

function loadFirst(): unknown {
  const { platform, arch } = process;
  const names = platformNames(platform, arch, platform === "linux" ? startOfProgram() : "");
  const failures: Failure[] = [];
  for (const [where, load] of candidates(names)) {
    try {
      return load();
    } catch (error) {
      if (isRefusedByDeno(error)) throw error;
      failures.push({ where, error });
    }
  }
  throw notLoaded(names[0] as string, failures, PACKAGED);
}

function candidates(names: readonly string[]): [string, () => unknown][] {
  const path = process.env.SYNCGUARD_NATIVE_PATH;
  if (path) return [[path, () => requireFile(path)]];
  return names.flatMap((name): [string, () => unknown][] => {
    const found: [string, () => unknown][] = [
      [`syncguard-${name}`, () => requirePackage(`syncguard-${name}`)],
    ];
    // In a bundle of ES modules, `__dirname` does not exist.
    const folder = typeof __dirname === "string" ? __dirname : undefined;
    if (folder === undefined) return found;
    const built = join(folder, "..", "..", "npm", name, `syncguard.${name}.node`);
    return existsSync(built) ? [[built, () => requireFile(built)], ...found] : found;
  });
}

/** Requires a file in a way that bundlers do not follow, because they cannot know the path. */
function requireFile(path: string): unknown {
  const absolute = resolve(path);
  return createRequire(absolute)(absolute);
}

/**
 * Requires a package by a literal name, so that bundlers and tools that trace files see what is needed, and inside `try`,
 * so that they treat packages that are not installed as optional.
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
      case "syncguard-win32-x64-msvc":
        return require("syncguard-win32-x64-msvc");
    }
  } catch (error) {
    // Caught only for the sake of tools; the caller decides what the error means.
    throw error;
  }
  // We publish no package for this platform, but the user may have built one.
  return createRequire(resolve("package.json"))(name);
}

/**
 * The names of the platform, as napi-rs spells them. On Linux the name depends on the C library that this program is linked
 * against. `start`, the first bytes of the program, may show which one that is. If not, both names are tried.
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

/** The first bytes of this program, which contain the path of its dynamic loader. */
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

/** Whether Deno refuses a permission. Version 2 gives that error another name than version 1. */
export function isRefusedByDeno(error: unknown): boolean {
  const { name } = (error ?? {}) as { name?: unknown };
  return "Deno" in globalThis && (name === "NotCapable" || name === "PermissionDenied");
}

function missesPermission(error: unknown): LockError {
  return new LockError(
    "AuthFailed",
    "Deno refuses what the native part of syncguard needs: run it with --allow-env, --allow-read and --allow-ffi",
    { cause: error },
  );
}

/** The error that says why there is no addon, and what to do. `packaged` lists the platforms that have a package. */
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

/** Whether the attempt failed because a package is not installed: it is not a broken package, and not a path that somebody gave. */
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
    " https://github.com/syncguard-native/syncguard makes the packages to install, as its README.md says."
  );
}
