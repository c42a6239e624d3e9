/** Debian's Chromium, driven by Playwright. */

import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { type Browser, chromium } from "playwright-core";

const NAMES = ["chromium", "google-chrome"];

export async function openBrowser(): Promise<Browser> {
  const folders = (process.env.PATH ?? "").split(delimiter);
  const paths = NAMES.flatMap((name) => folders.map((folder) => join(folder, name)));
  const executablePath = paths.find((path) => existsSync(path));
  if (executablePath === undefined) throw new Error("Chromium is missing: apt install chromium");
  // Chromium refuses to be root's in its sandbox. It sees the pages of tests alone.
  return await chromium.launch({ executablePath, chromiumSandbox: process.getuid?.() !== 0 });
}
