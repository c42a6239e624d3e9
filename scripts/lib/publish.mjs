// Publishing: the platforms' packages first, the package that names them last, so that no installation finds a version of
// `syncguard` whose binary is not there yet.

import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { PLATFORMS } from "./platforms.mjs";
import { must } from "./run.mjs";

/**
 * The tarballs in `folder`, in the order in which they are published: `{ path, manifest }`.
 *
 * @throws when the main package does not name all platforms, or one that is not there at its own version, or another one is
 */
export async function publishOrder(folder) {
  const all = [];
  for (const name of readdirSync(folder).sort()) {
    if (!name.endsWith(".tgz")) continue;
    const path = join(folder, name);
    const { output } = await must("tar", ["-xzOf", path, "package/package.json"], { quiet: true });
    all.push({ path, manifest: JSON.parse(output) });
  }
  const mains = all.filter(({ manifest }) => manifest.name === "syncguard");
  if (mains.length !== 1)
    throw new Error(`${folder} has ${mains.length} packages syncguard, not one`);
  const [main] = mains;
  const platforms = all.filter((each) => each !== main);
  const wanted = Object.entries(main.manifest.optionalDependencies ?? {});
  const faults = [
    ...Object.keys(PLATFORMS)
      .map((platform) => `syncguard-${platform}`)
      .filter((name) => !wanted.some(([each]) => each === name))
      .map((name) => `${name} is not named: pack with --release`),
    ...wanted
      .filter(([name, version]) => !platforms.some(({ manifest }) => is(manifest, name, version)))
      .map(([name, version]) => `${name} ${version} is missing`),
    ...platforms
      .filter(({ manifest }) => !wanted.some(([name, version]) => is(manifest, name, version)))
      .map(({ manifest }) => `${manifest.name} ${manifest.version} does not belong to syncguard`),
    ...all
      .filter(({ manifest }) => manifest.private || !manifest.repository?.url)
      .map(({ manifest }) => `${manifest.name} is private or names no repository`),
  ];
  if (faults.length > 0) throw new Error(faults.join("\n"));
  return [...platforms, main];
}

function is(manifest, name, version) {
  return manifest.name === name && manifest.version === version;
}

/** npm's arguments for a tarball. A version such as 3.0.0-alpha.1 must not become what `npm install syncguard` installs. */
export function publishArguments({ path, manifest }, { dryRun = false, provenance = false } = {}) {
  return [
    ...["publish", path, "--access", "public", "--ignore-scripts"],
    ...["--tag", manifest.version.includes("-") ? "next" : "latest"],
    // Who built it, and where: signed by the workflow's identity.
    ...(provenance ? ["--provenance"] : []),
    ...(dryRun ? ["--dry-run"] : []),
  ];
}

/** The registry that npm publishes to, as it is set here. */
export async function registryInUse() {
  const args = ["config", "get", "registry", "--loglevel=error"];
  const { output } = await must("npm", args, { quiet: true });
  return output.trim().replace(/\/?$/, "/");
}

/**
 * Whether a tarball is published already, as when an earlier run ended half-way.
 *
 * @throws when something else is published under its name and version, or the registry does not tell
 */
export async function isPublished({ path, manifest: { name, version } }, registry) {
  const response = await fetch(`${registry}${name}`, { headers: { "cache-control": "no-cache" } });
  const body = await response.text();
  if (response.status === 404) return false;
  if (!response.ok) throw new Error(`${registry} says ${response.status} of ${name}`);
  const there = JSON.parse(body).versions?.[version];
  if (there === undefined) return false;
  const digest = createHash("sha512").update(readFileSync(path)).digest("base64");
  if (there.dist.integrity === `sha512-${digest}`) return true;
  throw new Error(`${name} ${version} is published with other contents: give this another version`);
}
