// Checks of the package as its users get it.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pack } from "./pack.mjs";
import { root } from "./paths.mjs";
import { quietly } from "./steps.mjs";

const bin = (name) => join(root, "node_modules", ".bin", name);

/** publint: what the manifest says is there, in the format it says. */
export function publint() {
  return withTarball((tarball) => quietly(bin("publint"), ["run", "--strict", tarball]));
}

/** Are the types wrong: every entry point resolves to types that fit, for ESM and CommonJS. */
export function attw() {
  return withTarball((tarball) => quietly(bin("attw"), [tarball, "--no-emoji"]));
}

async function withTarball(use) {
  const folder = mkdtempSync(join(tmpdir(), "syncguard-packed-"));
  try {
    const { main } = await pack(folder);
    await use(main);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
