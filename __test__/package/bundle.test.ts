/** Bundles as users make them: our code in them, the package with the binary beside them. */

import { cpSync, readdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "esbuild";
import { build as buildWithVite } from "vite";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { temporaryFolder } from "../support/temp.js";
import { type Installed, installPackages } from "./installed.js";
import { asFunction, blockMarked, quickStart } from "./documents.js";

let installed: Installed;
/** Where bundles run: nothing is installed there but the binary. */
const deployed = temporaryFolder();
/** The package with the binary for this platform. */
let binary: string;

beforeAll(async () => {
  installed = await installPackages();
  const names = readdirSync(join(installed.folder, "node_modules"));
  binary = names.find((name) => name.startsWith("syncguard-")) as string;
  const ofBinary = (folder: string): string => join(folder, "node_modules", binary);
  cpSync(ofBinary(installed.folder), ofBinary(deployed.path), { recursive: true });
}, 600_000);
afterAll(() => {
  installed.remove();
  deployed.remove();
});

/** Runs a bundle where the project that it was made of cannot be reached. */
async function runBundle(path: string): Promise<string> {
  const { code, stdout, stderr } = await installed.node(path);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  return stdout;
}

const EXPECTED = /^written under fence \d{15}\n$/;

test("an ES module runs, bundled as docs/bundlers.md says", async () => {
  const esbuild = pathToFileURL(createRequire(import.meta.url).resolve("esbuild")).href;
  const code = blockMarked("bundle").code.replace('from "esbuild"', `from "${esbuild}"`);
  writeFileSync(join(installed.folder, "app.mjs"), quickStart);
  writeFileSync(join(installed.folder, "build.mjs"), code);
  const built = await installed.node("build.mjs");
  expect(built).toEqual({ code: 0, stdout: "", stderr: "" });
  cpSync(join(installed.folder, "dist"), deployed.path, { recursive: true });
  expect(await runBundle(join(deployed.path, "app.mjs"))).toMatch(EXPECTED);
});

test("CommonJS runs, and needs no more than that the binary is left out", async () => {
  const source = join(installed.folder, "function.mjs");
  writeFileSync(source, asFunction(quickStart, true));
  const outfile = join(deployed.path, "app.cjs");
  const external = ["syncguard-*"];
  const options = { bundle: true, platform: "node", format: "cjs", logLevel: "silent" } as const;
  const given = { entryPoints: [source], outfile, external, ...options };
  const { warnings, metafile } = await build({ ...given, metafile: true });
  expect(warnings).toEqual([]);
  expect(await runBundle(outfile)).toMatch(EXPECTED);
  // Nor is anything in it that only stands in the package's folder.
  expect(Object.keys(metafile.inputs).filter((name) => name.endsWith(".json"))).toEqual([]);
});

test("Vite's build for a server runs, with the package beside it", async () => {
  writeFileSync(join(installed.folder, "server.mjs"), quickStart);
  const outDir = join(installed.folder, "vite");
  await buildWithVite({
    ...{ root: installed.folder, configFile: false, logLevel: "silent" },
    build: { ssr: "server.mjs", outDir },
    ssr: { external: ["syncguard"] },
  });
  expect(await runBundle(join(outDir, "server.mjs"))).toMatch(EXPECTED);
});

test("Vite's build for a server runs, with the package in it", async () => {
  writeFileSync(join(installed.folder, "inside.mjs"), quickStart);
  const outDir = join(deployed.path, "vite");
  await buildWithVite({
    ...{ root: installed.folder, configFile: false, logLevel: "silent" },
    build: { ssr: "inside.mjs", outDir, rolldownOptions: { external: [/^syncguard-/] } },
    ssr: { noExternal: ["syncguard"] },
  });
  expect(await runBundle(join(outDir, "inside.mjs"))).toMatch(EXPECTED);
});

test("the binary's package is named literally, so that tools see that it is needed", async () => {
  const source = join(installed.folder, "traced.mjs");
  writeFileSync(source, 'import "syncguard";\n');
  const found: string[] = [];
  await build({
    entryPoints: [source],
    bundle: true,
    platform: "node",
    write: false,
    plugins: [
      {
        name: "trace",
        setup: ({ onResolve }) => {
          onResolve({ filter: /^syncguard-/ }, ({ path }) => {
            found.push(path);
            return { path, external: true };
          });
        },
      },
    ],
  });
  expect(found).toContain(binary);
});

test("without the binary, a bundle says what is missing", async () => {
  const source = join(installed.folder, "alone.mjs");
  writeFileSync(source, 'import "syncguard";\n');
  const alone = temporaryFolder();
  onTestFinished(alone.remove);
  const outfile = join(alone.path, "app.cjs");
  const external = ["syncguard-*"];
  const options = { bundle: true, platform: "node", format: "cjs", logLevel: "silent" } as const;
  await build({ entryPoints: [source], outfile, external, ...options });
  const { code, stderr } = await installed.node(outfile);
  expect(code).not.toBe(0);
  expect(stderr).toContain(`Cannot find module '${binary}'`);
});
