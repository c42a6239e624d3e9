/** What is published for each platform, in which order, and what an installation takes of it. */

import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import { pack } from "../../scripts/lib/pack.mjs";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as module from "../../scripts/lib/platforms.mjs";
// @ts-expect-error a module of the scripts, in plain JavaScript
import { publishArguments, publishOrder } from "../../scripts/lib/publish.mjs";
// @ts-expect-error a module of the scripts, in plain JavaScript
import { addStandIns } from "../../scripts/lib/stand-ins.mjs";
import { type Published, type Registry, startRegistry } from "../support/registry.js";
import { temporaryFolder } from "../support/temp.js";
import { type Ended, type Installed, installPackages, npmProgram, root } from "./installed.js";

const { isOlderThan, libraryOf, PLATFORMS, releaseBuild } = module as {
  isOlderThan: (version: string, other: string) => boolean;
  libraryOf: (platform: string) => string;
  PLATFORMS: Record<string, string>;
  releaseBuild: (platform: string) => { args: string[]; env: Record<string, string> };
};
const platforms = Object.keys(PLATFORMS);
const order = publishOrder as (folder: string) => Promise<Published[]>;

let installed: Installed;
/** The tarballs of a release: ours, and stand-ins for the platforms that cannot be built here. */
const release = temporaryFolder();

beforeAll(async () => {
  installed = await installPackages({ release: true });
  for (const tarball of installed.tarballs) {
    copyFileSync(tarball, join(release.path, basename(tarball)));
  }
  await (addStandIns as (folder: string) => Promise<string[]>)(release.path);
}, 600_000);
afterAll(() => {
  installed.remove();
  release.remove();
});

describe("a release", () => {
  it("is published with the main package last", async () => {
    const names = (await order(release.path)).map(({ manifest }) => manifest.name);
    expect(names.at(-1)).toBe("syncguard");
    expect(names.slice(0, -1).sort()).toEqual(platforms.map((name) => `syncguard-${name}`).sort());
  });

  it("is tried without publishing anything, and goes on where it ended", async () => {
    const [first, ...others] = await order(release.path);
    const { printed, registry } = await tryToPublish([first!]);
    expect(printed).toMatchObject({ code: 0, stderr: "" });
    const nameOf = ({ manifest }: Published): string => `${manifest.name} ${manifest.version}`;
    expect(printed.stdout.trim().split("\n")).toEqual([
      `${nameOf(first!)} is published already`,
      ...others.map(nameOf),
    ]);
    expect(registry.requests.filter((request) => !request.startsWith("GET "))).toEqual([]);
  }, 600_000);

  it("ends at a package that was published with other contents", { timeout: 600_000 }, async () => {
    const [first, second] = await order(release.path);
    const { printed, registry } = await tryToPublish([{ ...first!, path: second!.path }]);
    expect(printed).toMatchObject({ code: 1, stdout: "" });
    expect(printed.stderr).toContain(
      `${first!.manifest.name} ${first!.manifest.version} is published with other contents`,
    );
    expect(registry.requests.filter((request) => !request.startsWith("GET "))).toEqual([]);
  });

  /** Runs the script, without publishing, beside a registry that has these. */
  async function tryToPublish(
    published: readonly Published[],
  ): Promise<{ printed: Ended; registry: Registry }> {
    const registry = await startRegistry(published);
    onTestFinished(registry.close);
    const env = { PATH: process.env.PATH, npm_config_registry: registry.url };
    const args = ["scripts/publish.mjs", release.path, "--dry-run"];
    return { printed: await installed.nodeAt(root, env, ...args), registry };
  }

  it("is refused if a platform is missing", async () => {
    const folder = temporaryFolder();
    onTestFinished(folder.remove);
    for (const name of readdirSync(release.path)) {
      if (!name.includes("darwin-x64")) {
        copyFileSync(join(release.path, name), join(folder.path, name));
      }
    }
    await expect(order(folder.path)).rejects.toThrow(/^syncguard-darwin-x64 \S+ is missing$/);
  });

  it("is refused if it was packed for this machine alone", async () => {
    const folder = temporaryFolder();
    onTestFinished(folder.remove);
    await (pack as (folder: string) => Promise<unknown>)(folder.path);
    await expect(order(folder.path)).rejects.toThrow(
      "syncguard-darwin-arm64 is not named: pack with --release",
    );
  });

  it("is tagged so that nobody gets a version before its time", () => {
    const args = publishArguments as (each: object, options?: object) => string[];
    const manifest = { version: "3.0.0-alpha.1" };
    expect(args({ path: "a.tgz", manifest }).join(" ")).toContain("--tag next");
    expect(args({ path: "a.tgz", manifest: { version: "3.0.0" } }, { provenance: true })).toEqual(
      expect.arrayContaining(["--tag", "latest", "--provenance"]),
    );
  });
});

describe("an installation in an empty folder", { timeout: 600_000 }, () => {
  it.each([
    ["linux", "x64", "glibc", "linux-x64-gnu"],
    ["linux", "x64", "musl", "linux-x64-musl"],
    ["linux", "arm64", "glibc", "linux-arm64-gnu"],
    ["linux", "arm64", "musl", "linux-arm64-musl"],
    ["darwin", "x64", "", "darwin-x64"],
    ["darwin", "arm64", "", "darwin-arm64"],
    ["win32", "x64", "", "win32-x64-msvc"],
  ])("on %s, %s, %s takes the package for %s", async (os, cpu, libc, platform) => {
    const { names } = await install(os, cpu, libc);
    expect(names).toEqual(["syncguard", `syncguard-${platform}`]);
  });

  it("where there is no package says so, and leaves what needs none", async () => {
    const { folder, names } = await install("freebsd", "x64", "");
    expect(names).toEqual(["syncguard"]);
    const run = (code: string): Promise<Ended> =>
      installed.nodeAt(folder, {}, "--input-type=module", "-e", code);

    const missing = await run('import "syncguard";');
    expect(missing.code).toBe(1);
    expect(missing.stderr).toMatch(/The native part of syncguard for \S+ could not be loaded\./);

    const code = `import { LockError, TIME_TOLERANCE_MS, hashKey, lock } from "syncguard/common";
      console.log(new LockError("Aborted").code, TIME_TOLERANCE_MS, typeof lock, hashKey("a"));`;
    const { code: exit, stdout, stderr } = await run(code);
    const expected = "Aborted 1000 function 0000006100000123000002a7\n";
    expect({ exit, stdout, stderr }).toEqual({ exit: 0, stdout: expected, stderr: "" });

    writeFileSync(
      join(folder, "types.mts"),
      'import type { LockBackend } from "syncguard/common";\nimport type { HeldLock } from "syncguard";\nexport type Both = [LockBackend, HeldLock];\n',
    );
    const compiled = await installed.tsc(
      ...[join(folder, "types.mts"), "--strict", "--noEmit", "--module", "nodenext"],
      ...["--target", "es2022", "--lib", "es2022,dom,esnext.disposable"],
    );
    expect(compiled).toEqual({ code: 0, stdout: "", stderr: "" });
  });

  /** Installs the release for a platform, from a registry that has all of it. */
  async function install(
    os: string,
    cpu: string,
    libc: string,
  ): Promise<{ folder: string; names: string[] }> {
    const registry = await startRegistry(await order(release.path));
    onTestFinished(registry.close);
    const { path: folder, remove } = temporaryFolder();
    onTestFinished(remove);
    writeFileSync(join(folder, "package.json"), '{ "private": true }\n');
    const result = await installed.nodeAt(
      folder,
      {},
      ...[npmProgram(), "install", "syncguard", "--no-audit", "--no-fund", "--ignore-scripts"],
      ...["--registry", registry.url, "--cache", join(folder, ".npm-cache")],
      ...["--os", os, "--cpu", cpu, ...(libc === "" ? [] : ["--libc", libc])],
    );
    expect(result).toMatchObject({ code: 0 });
    const names = readdirSync(join(folder, "node_modules"));
    return { folder, names: names.filter((name) => !name.startsWith(".")).sort() };
  }
});

describe("the build of a release", () => {
  it("links for an old glibc, and for musl as a library", () => {
    const gnu = releaseBuild("linux-arm64-gnu");
    expect(gnu.args).toEqual(
      expect.arrayContaining(["zigbuild", "aarch64-unknown-linux-gnu.2.17"]),
    );
    const musl = releaseBuild("linux-x64-musl");
    expect(musl.args).toContain("x86_64-unknown-linux-musl");
    expect(musl.env).toEqual({ RUSTFLAGS: "-C target-feature=-crt-static" });
    expect(libraryOf("win32-x64-msvc")).toBe("syncguard_node.dll");
    expect(() => releaseBuild("freebsd-x64")).toThrow("freebsd-x64 is none of linux-x64-gnu");
  });

  it.each([
    ["2.17", "2.34", true],
    ["2.17", "2.17", false],
    ["2.17", "2.2", false],
    ["2.17", "3.0", true],
  ])("knows whether %s is older than %s", (version, other, expected) => {
    expect(isOlderThan(version, other)).toBe(expected);
  });

  it("is in the workflow for every platform that gets a package", () => {
    const workflow = readFileSync(join(root, ".github/workflows/platforms.yml"), "utf8");
    const built = [...workflow.matchAll(/^ +- platform: (\S+)$/gm)].map(([, name]) => name);
    expect(built.sort()).toEqual([...platforms].sort());
  });

  it("is built by workflows that name each action by its commit", () => {
    const folder = join(root, ".github/workflows");
    const actions = readdirSync(folder).flatMap((name) => [
      ...readFileSync(join(folder, name), "utf8").matchAll(/uses: (?!\.\/)(.*)$/gm),
    ]);
    expect(actions.length).toBeGreaterThan(5);
    for (const [, action] of actions) expect(action).toMatch(/^[\w/-]+@[0-9a-f]{40} # v[\d.]+$/);
  });
});

it("packages can be made on a platform for which none is published", async () => {
  const folder = temporaryFolder();
  onTestFinished(folder.remove);
  const npm = join(folder.path, "npm");
  // What the build puts there.
  mkdirSync(join(npm, "freebsd-x64"), { recursive: true });
  writeFileSync(join(npm, "freebsd-x64/syncguard.freebsd-x64.node"), "binary");

  const out = join(folder.path, "packages");
  const { main, platforms } = await packFrom(npm, out);
  expect(platforms.map(({ name }) => name)).toEqual(["syncguard-freebsd-x64"]);
  const { version, optionalDependencies } = manifestIn(main);
  expect(optionalDependencies).toEqual({ "syncguard-freebsd-x64": version });
  const binary = platforms[0]?.path as string;
  expect(manifestIn(binary)).toEqual({
    name: "syncguard-freebsd-x64",
    version,
    description: "The native part of syncguard for freebsd, x64",
    license: "MIT",
    repository: manifestIn(main).repository,
    main: "syncguard.freebsd-x64.node",
    files: ["syncguard.freebsd-x64.node"],
    os: ["freebsd"],
    cpu: ["x64"],
    engines: { node: ">=20" },
  });
  const names = execFileSync("tar", ["-tzf", binary], { encoding: "utf8" }).trim().split("\n");
  const expected = ["LICENSE", "README.md", "package.json", "syncguard.freebsd-x64.node"];
  expect(names.sort()).toEqual(expected.map((name) => `package/${name}`));
});

const packFrom = (npm: string, folder: string): Promise<Packed> =>
  (pack as (folder: string, options: { npm: string }) => Promise<Packed>)(folder, { npm });

type Packed = { main: string; platforms: { name: string; path: string }[] };

/** The manifest in a tarball. */
function manifestIn(tarball: string): Record<string, unknown> {
  const text = execFileSync("tar", ["-xzOf", tarball, "package/package.json"], {
    encoding: "utf8",
  });
  return JSON.parse(text) as Record<string, unknown>;
}
