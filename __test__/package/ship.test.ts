/** Programs and folders that users deploy, made by other tools than bundlers: each runs where no more is installed. */

import { spawn } from "node:child_process";
import { chmodSync, copyFileSync, cpSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { build } from "esbuild";
import { expect, onTestFinished, test } from "vitest";
import { runProgram } from "../support/program.js";
import { temporaryFolder } from "../support/temp.js";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as elf from "../../scripts/lib/elf.mjs";
// @ts-expect-error a module of the scripts, in plain JavaScript
import { bin } from "../../scripts/lib/paths.mjs";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as platforms from "../../scripts/lib/platforms.mjs";
// @ts-expect-error a module of the scripts, in plain JavaScript
import { shippingTool } from "../../scripts/lib/shipping.mjs";
import { deployBefore, EXPECTED, settingsFor } from "./deployed.js";
import { documents } from "./documents.js";

const { inspectAddon } = elf as { inspectAddon: (path: string) => Promise<Needs> };
const { isOlderThan } = platforms as { isOlderThan: (version: string, other: string) => boolean };
type Needs = { libraries: string[]; glibc: string; faults: string[] };

const tool = shippingTool as (path: string) => string;
const load = (name: string): unknown => createRequire(import.meta.url)(tool(name));

const deployed = deployBefore();

/** A folder with nothing in it. */
function emptyFolder(place?: string): string {
  const { path, remove } = temporaryFolder(place);
  onTestFinished(remove);
  return path;
}

/** What a program prints, with locks in that folder. */
async function outputOf(program: string, where: string): Promise<string> {
  const env = { HOME: where, XDG_STATE_HOME: where, SYNCGUARD_URL: "local", NODE_PATH: "" };
  const { code, stdout, stderr } = await runProgram(program, [], env);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  return stdout;
}

test("@vercel/nft finds what the program needs", async () => {
  type Trace = (files: string[], options: object) => Promise<{ fileList: Set<string> }>;
  const { nodeFileTrace } = load("@vercel/nft") as { nodeFileTrace: Trace };
  const { fileList } = await nodeFileTrace([deployed.inProject("app.mjs")], {
    base: deployed.folder,
  });
  const place = emptyFolder();
  for (const name of fileList) {
    mkdirSync(dirname(join(place, name)), { recursive: true });
    copyFileSync(deployed.inProject(name), join(place, name));
  }
  const { code, stdout, stderr } = await deployed.installed.node(join(place, "app.mjs"));
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(stdout).toMatch(EXPECTED);
});

test("Bun compiles the program with the binary in it", async () => {
  const place = emptyFolder();
  const program = join(place, "app");
  const source = deployed.inProject("app.mjs");
  const args = ["build", "--compile", source, "--outfile", program];
  expect(await runProgram((bin as (name: string) => string)("bun"), args)).toMatchObject({
    code: 0,
  });
  expect(await outputOf(program, place)).toMatch(EXPECTED);
});

test("Node's single executable runs, with the binary beside it", async () => {
  const place = emptyFolder();
  const at = (name: string): string => join(place, name);
  const external = ["syncguard-*"];
  const options = { bundle: true, platform: "node", format: "cjs" } as const;
  const [entry, outfile] = [deployed.inProject("function.mjs"), at("app.cjs")];
  await build({
    entryPoints: [entry],
    outfile,
    external,
    ...options,
    ...settingsFor("Node's single executable"),
  });
  const settings = { main: outfile, output: at("blob"), disableExperimentalSEAWarning: true };
  writeFileSync(at("sea.json"), JSON.stringify(settings));
  const made = await deployed.installed.node("--experimental-sea-config", at("sea.json"));
  expect(made).toMatchObject({ code: 0 });
  copyFileSync(process.execPath, at("app"));
  chmodSync(at("app"), 0o755);
  const inject = [tool("postject/dist/cli.js"), at("app"), "NODE_SEA_BLOB", at("blob")];
  const fuse = "NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2";
  const injected = await deployed.installed.node(...inject, "--sentinel-fuse", fuse);
  expect(injected).toMatchObject({ code: 0 });
  cpSync(join(deployed.path, "node_modules"), at("node_modules"), { recursive: true });
  expect(await outputOf(at("app"), place)).toMatch(EXPECTED);
});

test("an asar has the binary outside, and all else inside", async () => {
  type Asar = {
    createPackageWithOptions: (source: string, file: string, options: object) => Promise<void>;
    extractAll: (file: string, place: string) => void;
    listPackage: (file: string, options: { isPack: boolean }) => string[];
  };
  const asar = load("@electron/asar") as Asar;
  const place = emptyFolder();
  const file = join(place, "app.asar");
  await asar.createPackageWithOptions(deployed.folder, file, settingsFor("Electron's asar"));
  const outside = asar
    .listPackage(file, { isPack: true })
    .filter((line) => line.startsWith("unpack"));
  const addon = `${deployed.binary.replace("-", ".")}.node`;
  expect(outside).toEqual([`unpack : /node_modules/${deployed.binary}/${addon}`]);
  expect(readdirSync(join(place, "app.asar.unpacked/node_modules", deployed.binary))).toEqual([
    addon,
  ]);
  asar.extractAll(file, join(place, "app"));
  const { code, stdout, stderr } = await deployed.installed.node(join(place, "app/app.mjs"));
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(stdout).toMatch(EXPECTED);
});

test.runIf(process.platform === "linux")(
  "images of Debian have what the binary needs",
  async () => {
    const path = join(deployed.path, "node_modules", deployed.binary);
    const file = `${deployed.binary.replace("-", ".")}.node`;
    const { libraries, glibc, faults } = await inspectAddon(join(path, file));
    expect(faults).toEqual([]);
    const page = documents.get("docs/bundlers.md") ?? "";
    const named = [...page.matchAll(/\(glibc (2\.\d+)\)|\((2\.\d+)\)|glibc (2\.\d+)\./g)];
    const versions = named.map(([, ...numbers]) => numbers.find((number) => number) ?? "");
    expect(versions).toEqual(["2.36", "2.41", "2.34"]);
    for (const version of versions) expect(isOlderThan(version, glibc), version).toBe(false);
    // Those of distroless images that have libgcc.
    const inImages = /^(libc|libm|libgcc_s|ld-linux-[\w-]+)\.so\.\d+$/;
    expect(libraries.filter((name) => !inImages.test(name))).toEqual([]);
  },
);

test.runIf(process.platform === "linux")(
  "where the C library is musl, the import says what to do",
  async () => {
    const place = emptyFolder();
    // What the first bytes of Alpine's Node.js contain.
    writeFileSync(join(place, "node"), "\x7fELF /lib/ld-musl-x86_64.so.1");
    const code = `process.execPath = "${join(place, "node")}";`;
    writeFileSync(deployed.inProject("musl.cjs"), `${code}\nrequire("syncguard");\n`);
    const { code: exit, stderr } = await deployed.installed.node("musl.cjs");
    expect(exit).toBe(1);
    expect(stderr).toMatch(/The native part of syncguard for linux-\w+-musl could not be loaded\./);
    expect(stderr).toContain(
      `There are binaries for ${deployed.binary.slice("syncguard-".length)} only.`,
    );
    expect(stderr).toContain("Build it on this platform");
  },
);

const ROUTE = `import { lock } from "syncguard";
export const dynamic = "force-dynamic";
export async function GET() {
  const work = async ({ fence }) => \`written under fence \${fence}\\n\`;
  return new Response(await lock(work, { key: "account:4711" }));
}
`;

test("Next.js has the binary in its standalone folder", { timeout: 600_000 }, async () => {
  // Next.js follows no link out of the project, and what is on another disk cannot be linked into it. The folder above the tools has
  // no lock file, by which Next.js would take it for the project's.
  const project = emptyFolder(join(tool("."), "../.."));
  const linked = await runProgram("cp", ["-al", tool("."), join(project, "node_modules")]);
  expect(linked).toMatchObject({ code: 0 });
  cpSync(deployed.inProject("node_modules"), join(project, "node_modules"), { recursive: true });
  const route = join(project, "app/locked");
  mkdirSync(route, { recursive: true });
  writeFileSync(join(route, "route.js"), ROUTE);
  writeFileSync(join(project, "package.json"), '{ "private": true }\n');
  const config = JSON.stringify(settingsFor("Next.js, standalone"));
  writeFileSync(join(project, "next.config.mjs"), `export default ${config};\n`);
  const env = { NEXT_TELEMETRY_DISABLED: "1", PATH: process.env.PATH };
  const next = join(project, "node_modules/next/dist/bin/next");
  const built = await deployed.installed.nodeAt(project, env, next, "build");
  expect(built, built.stdout + built.stderr).toMatchObject({ code: 0 });

  const place = emptyFolder();
  cpSync(join(project, ".next/standalone"), place, { recursive: true, verbatimSymlinks: true });
  const server = spawn(process.execPath, [join(place, "server.js")], {
    cwd: place,
    env: { PORT: "0", HOSTNAME: "127.0.0.1", SYNCGUARD_URL: "local", XDG_STATE_HOME: place },
    stdio: ["ignore", "pipe", "inherit"],
  });
  onTestFinished(() => void server.kill("SIGKILL"));
  let said = "";
  for await (const chunk of server.stdout) {
    said += String(chunk);
    const [url] = /http:\/\/127\.0\.0\.1:[1-9]\d*/.exec(said) ?? [];
    if (url === undefined || !said.includes("Ready")) continue;
    const response = await fetch(`${url}/locked`);
    expect(await response.text()).toMatch(EXPECTED);
    return;
  }
  throw new Error(`the server has ended: ${said}`);
});
