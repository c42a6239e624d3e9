// The tarballs that are published: `syncguard`, and one package per platform with the addon.

import { copyFileSync, cpSync, existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, relative, sep } from "node:path";
import { inspectAddon } from "./elf.mjs";
import { isPacked, packedDocument, packedReadme } from "./packed-documents.mjs";
import { filesUnder, root } from "./paths.mjs";
import { platformManifest, PLATFORMS } from "./platforms.mjs";
import { must } from "./run.mjs";

/**
 * Makes the tarballs from what is built into `folder`. Resolves to
 * `{ main, platforms: [{ name, path, addon }] }`. In `npm` is a folder with the addon for each platform that is built.
 *
 * The main package names the platforms that are packed beside it; for a `release`, all that are published. What is not
 * published could not be found by `npm ci`, and somebody else could publish something under that name.
 */
export async function pack(folder, { npm = join(root, "npm"), release = false } = {}) {
  mkdirSync(folder, { recursive: true });
  const staging = mkdtempSync(join(tmpdir(), "syncguard-pack-"));
  try {
    const own = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
    const platforms = [];
    for (const platform of readdirSync(npm).sort()) {
      const manifest = platformManifest(platform, own);
      const addon = join(npm, platform, manifest.main);
      if (existsSync(addon)) platforms.push(await packPlatform(addon, manifest, staging, folder));
    }
    if (platforms.length === 0) throw new Error("no addon is built: run `npm run build` first");
    const published = Object.keys(PLATFORMS).map((platform) => `syncguard-${platform}`);
    const built = platforms.map(({ name }) => name);
    const names = [...new Set(release ? [...published, ...built] : built)].sort();
    return { main: await packMain(own, names, staging, folder), platforms };
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

// The repository's package.json names no platform package, because `npm ci` could not resolve what is
// not published yet.
async function packMain(own, platforms, staging, folder) {
  const ours = new Set(["private", "scripts", "devDependencies", "overrides"]);
  const manifest = Object.fromEntries(Object.entries(own).filter(([name]) => !ours.has(name)));
  manifest.optionalDependencies = Object.fromEntries(platforms.map((name) => [name, own.version]));
  const stage = stageFor(manifest, staging);
  cpSync(join(root, "dist"), join(stage, "dist"), {
    recursive: true,
    filter: (path) => basename(path) !== ".stamp",
  });
  const names = platforms.map((name) => name.replace("syncguard-", ""));
  const packaged = `"use strict";\nexports.PACKAGED = ${JSON.stringify(names)};\n`;
  writeFileSync(join(stage, "dist", "native", "packaged.js"), packaged);
  writeDocuments(manifest.repository.url.replace(/^git\+|\.git$/g, ""), stage);
  return npmPack(stage, folder);
}

function writeDocuments(repository, stage) {
  const files = filesUnder(join(root, "docs")).map((path) => relative(root, path));
  for (const name of ["README.md", "CHANGELOG.md", ...files]) {
    const path = name.split(sep).join("/");
    if (!isPacked(path)) continue;
    const text = readFileSync(join(root, name), "utf8");
    const make = path === "README.md" ? packedReadme(text, repository) : text;
    const made = path.endsWith(".md") ? packedDocument(path, make, repository) : make;
    mkdirSync(join(stage, dirname(name)), { recursive: true });
    writeFileSync(join(stage, name), made);
  }
}

async function packPlatform(addon, manifest, staging, folder) {
  const { name, description } = manifest;
  const isRead = manifest.os.includes("linux") && !manifest.libc?.includes("musl");
  const inspected = isRead ? await inspect(addon) : {};
  const stage = stageFor(manifest, staging);
  const readme = `# ${name}\n\n${description}. It is installed with \`syncguard\` and is of no use alone.\n`;
  writeFileSync(join(stage, "README.md"), readme);
  copyFileSync(addon, join(stage, manifest.main));
  return { name, path: await npmPack(stage, folder), addon: inspected };
}

/** A folder for the package, with what each has. */
function stageFor(manifest, staging) {
  const stage = join(staging, manifest.name);
  mkdirSync(stage);
  writeFileSync(join(stage, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);
  copyFileSync(join(root, "LICENSE"), join(stage, "LICENSE"));
  return stage;
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
