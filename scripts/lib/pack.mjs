// The tarballs that are published: `syncguard`, and one package per platform with the addon.

import { copyFileSync, cpSync, existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { inspectAddon } from "./elf.mjs";
import { root } from "./paths.mjs";
import { must } from "./run.mjs";

/**
 * Makes the tarballs from what is built into `folder`. Resolves to
 * `{ main, platforms: [{ name, path, addon }] }`.
 */
export async function pack(folder) {
  mkdirSync(folder, { recursive: true });
  const staging = mkdtempSync(join(tmpdir(), "syncguard-pack-"));
  try {
    const platforms = [];
    for (const name of builtPlatforms()) platforms.push(await packPlatform(name, staging, folder));
    if (platforms.length === 0) throw new Error("no addon is built: run `npm run build` first");
    return { main: await packMain(staging, folder), platforms };
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

// The repository's package.json names no platform package, because `npm ci` could not resolve what is
// not published yet; the published one names all of them, at its own version.
async function packMain(staging, folder) {
  const manifest = readJson(join(root, "package.json"));
  for (const field of ["private", "scripts", "devDependencies", "napi"]) delete manifest[field];
  manifest.optionalDependencies = Object.fromEntries(
    platformManifests().map(({ name }) => [name, manifest.version]),
  );
  const stage = join(staging, "main");
  mkdirSync(stage);
  writeJson(join(stage, "package.json"), manifest);
  cpSync(join(root, "dist"), join(stage, "dist"), {
    recursive: true,
    filter: (path) => basename(path) !== ".stamp",
  });
  for (const file of ["README.md", "LICENSE", "CHANGELOG.md", "index.d.ts"]) {
    if (existsSync(join(root, file))) copyFileSync(join(root, file), join(stage, file));
  }
  return npmPack(stage, folder);
}

async function packPlatform(name, staging, folder) {
  const source = join(root, "npm", name);
  const manifest = readJson(join(source, "package.json"));
  const { version } = readJson(join(root, "package.json"));
  if (manifest.version !== version) {
    throw new Error(`npm/${name}/package.json has version ${manifest.version}, not ${version}`);
  }
  const stage = join(staging, name);
  mkdirSync(stage);
  for (const file of ["package.json", "README.md", manifest.main]) {
    copyFileSync(join(source, file), join(stage, file));
  }
  copyFileSync(join(root, "LICENSE"), join(stage, "LICENSE"));
  const addon = manifest.os.includes("linux") ? await inspect(join(source, manifest.main)) : {};
  return { name: manifest.name, path: await npmPack(stage, folder), addon };
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

function builtPlatforms() {
  return platformFolders().filter((name) => {
    const { main } = readJson(join(root, "npm", name, "package.json"));
    return existsSync(join(root, "npm", name, main));
  });
}

function platformManifests() {
  return platformFolders().map((name) => readJson(join(root, "npm", name, "package.json")));
}

function platformFolders() {
  return readdirSync(join(root, "npm")).filter(
    (name) => name !== "syncguard" && existsSync(join(root, "npm", name, "package.json")),
  );
}

function readJson(path) {
  return JSON.parse(readFileSync(path, "utf8"));
}

function writeJson(path, value) {
  writeFileSync(path, `${JSON.stringify(value, null, 2)}\n`);
}
