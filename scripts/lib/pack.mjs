// The tarballs that are published: `syncguard`, and one package per platform with the addon.

import { copyFileSync, cpSync, existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { inspectAddon } from "./elf.mjs";
import { root } from "./paths.mjs";
import { platformManifest, platformReadme } from "./platform-package.mjs";
import { must } from "./run.mjs";

/**
 * Makes the tarballs from what is built into `folder`. Resolves to
 * `{ main, platforms: [{ name, path, addon }] }`. In `npm` are the folders of the platforms' packages.
 *
 * The main package names the platforms that are packed beside it; for a `release`, all that have a folder. What is not
 * published could not be found by `npm ci`, and somebody else could publish something under that name.
 */
export async function pack(folder, { npm = join(root, "npm"), release = false } = {}) {
  mkdirSync(folder, { recursive: true });
  const staging = mkdtempSync(join(tmpdir(), "syncguard-pack-"));
  try {
    const all = platformPackages(npm);
    const built = all.filter(({ source, manifest }) => existsSync(join(source, manifest.main)));
    if (built.length === 0) throw new Error("no addon is built: run `npm run build` first");
    const platforms = [];
    for (const each of built) platforms.push(await packPlatform(each, staging, folder));
    const names = (release ? all : built).map(({ manifest }) => manifest.name);
    return { main: await packMain(names, staging, folder), platforms };
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

// The repository's package.json names no platform package, because `npm ci` could not resolve what is
// not published yet.
async function packMain(platforms, staging, folder) {
  const ours = new Set(["private", "scripts", "devDependencies", "napi"]);
  const fields = Object.entries(readJson(join(root, "package.json")));
  const manifest = Object.fromEntries(fields.filter(([name]) => !ours.has(name)));
  manifest.optionalDependencies = Object.fromEntries(
    platforms.map((name) => [name, manifest.version]),
  );
  const stage = join(staging, "main");
  mkdirSync(stage);
  writeJson(join(stage, "package.json"), manifest);
  cpSync(join(root, "dist"), join(stage, "dist"), {
    recursive: true,
    filter: (path) => basename(path) !== ".stamp",
  });
  for (const file of ["README.md", "LICENSE", "CHANGELOG.md"]) {
    if (existsSync(join(root, file))) copyFileSync(join(root, file), join(stage, file));
  }
  return npmPack(stage, folder);
}

async function packPlatform({ source, manifest }, staging, folder) {
  const { name, main } = manifest;
  const stage = join(staging, name);
  mkdirSync(stage);
  writeJson(join(stage, "package.json"), manifest);
  writeFileSync(join(stage, "README.md"), platformReadme(manifest));
  copyFileSync(join(source, main), join(stage, main));
  copyFileSync(join(root, "LICENSE"), join(stage, "LICENSE"));
  const isRead = manifest.os.includes("linux") && !manifest.libc?.includes("musl");
  const addon = isRead ? await inspect(join(source, main)) : {};
  return { name, path: await npmPack(stage, folder), addon };
}

async function inspect(path) {
  const addon = await inspectAddon(path);
  if (addon.faults.length === 0) return addon;
  throw new Error(addon.faults.map((fault) => `${basename(path)} ${fault}`).join("\n"));
}

async function npmPack(stage, folder) {
  const args = ["pack", stage, "--ignore-scripts", "--json", "--pack-destination", folder];
  const { output } = await must("npm", [...args, "--loglevel=error"], { quiet: true });
  const [{ filename }] = JSON.parse(output.slice(output.indexOf("[")));
  return join(folder, filename);
}

/** The packages of all platforms that have a folder; the manifest that a folder lacks is made here, not in the tree. */
function platformPackages(npm) {
  const own = readJson(join(root, "package.json"));
  const packages = [];
  for (const platform of readdirSync(npm).sort()) {
    if (platform === "syncguard") continue;
    const source = join(npm, platform);
    const path = join(source, "package.json");
    const isNamed = existsSync(path);
    const manifest = isNamed ? readJson(path) : platformManifest(platform, own);
    if (manifest.version !== own.version) {
      throw new Error(
        `npm/${platform}/package.json has version ${manifest.version}, not ${own.version}`,
      );
    }
    if (isNamed || existsSync(join(source, manifest.main))) packages.push({ source, manifest });
  }
  return packages;
}

function readJson(path) {
  return JSON.parse(readFileSync(path, "utf8"));
}

function writeJson(path, value) {
  writeFileSync(path, `${JSON.stringify(value, null, 2)}\n`);
}
