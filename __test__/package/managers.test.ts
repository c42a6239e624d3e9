/** Package managers install the packed packages from a registry, and the program runs. */

import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import { MANAGERS, mustAsNewcomer } from "../../scripts/lib/rehearsal/managers.mjs";
import { type Published, type Registry, startRegistry } from "../support/registry.js";
import { temporaryFolder } from "../support/temp.js";
import { EXPECTED } from "./deployed.js";
import { quickStart } from "./documents.js";
import { type Installed, installPackages } from "./installed.js";

type Manager = {
  program: string[];
  files: (registry: string) => Record<string, string>;
  install: (version: string) => string[];
  start: string[];
};
const managers = MANAGERS as Record<string, Manager>;
const run = mustAsNewcomer as (
  command: string[],
  place: { cwd: string; home: string },
) => Promise<string>;

let installed: Installed;
let registry: Registry;
let published: Published[];

beforeAll(async () => {
  installed = await installPackages();
  published = installed.tarballs.map((path) => ({ path, manifest: manifestIn(path) }));
  registry = await startRegistry(published);
}, 600_000);
afterAll(async () => {
  await registry.close();
  installed.remove();
});

function manifestIn(tarball: string): Published["manifest"] {
  const text = execFileSync("tar", ["-xzOf", tarball, "package/package.json"]);
  return JSON.parse(text.toString()) as Published["manifest"];
}

// Deno asks for more of a registry: npm run rehearse has it.
const names = ["npm", "pnpm", "Yarn 1", "Yarn 4", "Yarn 4 with node_modules", "Bun"];

test.each(names)("%s", { timeout: 600_000 }, async (name) => {
  const { program, files, install, start } = managers[name] as Manager;
  const { path, remove } = temporaryFolder();
  onTestFinished(remove);
  const place = { cwd: join(path, "project"), home: join(path, "home") };
  for (const folder of Object.values(place)) mkdirSync(folder);
  const all = {
    ...files(`${registry.url}/`),
    "package.json": '{ "private": true, "type": "module" }\n',
    "main.mjs": `process.env.SYNCGUARD_URL = "local";\n${quickStart}`,
  };
  for (const [file, text] of Object.entries(all)) writeFileSync(join(place.cwd, file), text);
  const { version } = (published[0] as Published).manifest;
  await run([...program, ...install(version)], place);
  expect(await run([...start, "main.mjs"], place)).toMatch(EXPECTED);
});
