/** Bundles as users make them: our code in them, the package with the binary beside them. */

import { cpSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "esbuild";
import { build as buildWithVite } from "vite";
import { expect, onTestFinished, test } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import { shippingTool } from "../../scripts/lib/shipping.mjs";
import { temporaryFolder } from "../support/temp.js";
import { deployBefore, EXPECTED, settingsFor } from "./deployed.js";
import { blockMarked } from "./documents.js";

const load = (path: string): unknown =>
  createRequire(import.meta.url)((shippingTool as (path: string) => string)(path));

/** What makes `require` in an ES module, as docs/bundlers.md has it for esbuild. */
const [, banner = ""] = /js: '(.*)'/.exec(blockMarked("bundle").code) ?? [];

const deployed = deployBefore();

test("an ES module runs, bundled as docs/bundlers.md says", async () => {
  const esbuild = pathToFileURL(createRequire(import.meta.url).resolve("esbuild")).href;
  const code = blockMarked("bundle").code.replace('from "esbuild"', `from "${esbuild}"`);
  writeFileSync(deployed.inProject("build.mjs"), code);
  const built = await deployed.installed.node("build.mjs");
  expect(built).toEqual({ code: 0, stdout: "", stderr: "" });
  cpSync(deployed.inProject("dist"), deployed.path, { recursive: true });
  expect(await deployed.run("app.mjs")).toMatch(EXPECTED);
});

test("CommonJS runs, and needs no more than that the binary is left out", async () => {
  const outfile = join(deployed.path, "app.cjs");
  const external = ["syncguard-*"];
  const options = { bundle: true, platform: "node", format: "cjs", logLevel: "silent" } as const;
  const entryPoints = [deployed.inProject("function.mjs")];
  const given = { entryPoints, outfile, external, ...options };
  const { warnings, metafile } = await build({ ...given, metafile: true });
  expect(warnings).toEqual([]);
  expect(await deployed.run("app.cjs")).toMatch(EXPECTED);
  // Nor is anything in it that only stands in the package's folder.
  expect(Object.keys(metafile.inputs).filter((name) => name.endsWith(".json"))).toEqual([]);
});

type Rollup = {
  rollup: (options: object) => Promise<{ write: (output: object) => Promise<unknown> }>;
};
type Plugin = (options?: object) => object;

test.each([
  ["an ES module", "app.mjs", "es", "rollup.mjs", banner],
  ["CommonJS", "function.mjs", "cjs", "rollup.cjs", ""],
])("Rollup's build of %s runs", async (_, source, format, file, head) => {
  const { rollup } = load("rollup") as Rollup;
  const { nodeResolve } = load("@rollup/plugin-node-resolve") as { nodeResolve: Plugin };
  const plugins = [nodeResolve(), (load("@rollup/plugin-commonjs") as Plugin)()];
  const warnings: unknown[] = [];
  const onwarn = (warning: unknown): unknown => warnings.push(warning);
  const input = deployed.inProject(source);
  const bundle = await rollup({ input, plugins, onwarn, ...settingsFor("Rollup") });
  const output = { file: join(deployed.path, file), format, banner: head };
  await bundle.write({ ...output, inlineDynamicImports: true });
  expect(warnings).toEqual([]);
  expect(await deployed.run(file)).toMatch(EXPECTED);
});

type Webpack = (options: object, done: (error: Error | null, stats: Stats) => void) => void;
type Stats = { toString: (options: object) => string };

test("webpack's build runs", async () => {
  const output = { path: deployed.path, filename: "webpack.cjs" };
  const entry = deployed.inProject("app.mjs");
  const given = {
    mode: "production",
    context: deployed.folder,
    entry,
    output,
    ...settingsFor("webpack"),
  };
  const said = await new Promise<string>((resolve, reject) => {
    (load("webpack") as Webpack)(given, (error, stats) => {
      if (error === null) resolve(stats.toString({ all: false, errors: true, warnings: true }));
      else reject(error);
    });
  });
  expect(said).toBe("");
  expect(await deployed.run("webpack.cjs")).toMatch(EXPECTED);
});

/** Builds `app.mjs` for a server, and gives the place of what is built. */
async function buildForServer(outDir: string, tool: string): Promise<string> {
  const { build: given, ...settings } = settingsFor(tool);
  await buildWithVite({
    ...{ root: deployed.folder, configFile: false, logLevel: "silent", ...settings },
    build: { ssr: "app.mjs", outDir, ...(given as object) },
  });
  return join(outDir, "app.mjs");
}

test("Vite's build for a server runs, with the package beside it", async () => {
  const built = await buildForServer(deployed.inProject("vite"), "Vite, SSR, package outside");
  const { code, stdout, stderr } = await deployed.installed.node(built);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(stdout).toMatch(EXPECTED);
});

test("Vite's build for a server runs, with the package in it", async () => {
  const outDir = join(deployed.path, "vite");
  await buildForServer(outDir, "Vite 8, SSR, package inside");
  expect(await deployed.run("vite/app.mjs")).toMatch(EXPECTED);
});

test("the binary's package is named literally, so that tools see that it is needed", async () => {
  const source = deployed.inProject("traced.mjs");
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
  expect(found).toContain(deployed.binary);
});

test("without the binary, a bundle says what is missing", async () => {
  const source = deployed.inProject("alone.mjs");
  writeFileSync(source, 'import "syncguard";\n');
  const alone = temporaryFolder();
  onTestFinished(alone.remove);
  const outfile = join(alone.path, "app.cjs");
  const external = ["syncguard-*"];
  const options = { bundle: true, platform: "node", format: "cjs", logLevel: "silent" } as const;
  await build({ entryPoints: [source], outfile, external, ...options });
  const { code, stderr } = await deployed.installed.node(outfile);
  expect(code).not.toBe(0);
  expect(stderr).toContain(`Cannot find module '${deployed.binary}'`);
});
