// Checks of the package as its users get it.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pack } from "./pack.mjs";
import { bin } from "./paths.mjs";
import { quietly } from "./steps.mjs";

/** What the manifest says is there, in the format it says; and every entry point resolves to types that fit, in both formats. */
export async function checkPackage() {
  const folder = mkdtempSync(join(tmpdir(), "syncguard-packed-"));
  try {
    const { main } = await pack(folder);
    await quietly(bin("publint"), ["run", "--strict", main]);
    await quietly(bin("attw"), [main, "--no-emoji"]);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
