// Packages for platforms that cannot be built here, with a file in the place of the binary: they can be published to a
// registry of one's own and installed, and not loaded.

import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { root } from "./paths.mjs";
import { platformManifest, PLATFORMS } from "./platforms.mjs";
import { must } from "./run.mjs";

/** Adds to `folder`, which has the tarballs of a release, those that it lacks. Resolves to their platforms. */
export async function addStandIns(folder) {
  const own = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const made = [];
  for (const platform of Object.keys(PLATFORMS)) {
    const manifest = platformManifest(platform, own);
    const isMade = await packFiles(folder, manifest, { [manifest.main]: "binary" });
    if (isMade) made.push(platform);
  }
  return made;
}

/** Makes a tarball of a manifest and files, with their texts by their names, unless it is there. */
export async function packFiles(folder, manifest, files) {
  const path = join(folder, `${manifest.name}-${manifest.version}.tgz`);
  if (existsSync(path)) return false;
  const stage = mkdtempSync(join(tmpdir(), "syncguard-stand-in-"));
  try {
    mkdirSync(join(stage, "package"));
    const all = { ...files, "package.json": JSON.stringify(manifest) };
    for (const [name, text] of Object.entries(all))
      writeFileSync(join(stage, "package", name), text);
    await must("tar", ["-czf", path, "-C", stage, "package"], { quiet: true });
    return true;
  } finally {
    rmSync(stage, { recursive: true, force: true });
  }
}
