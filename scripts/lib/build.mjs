// Install, native addon, TypeScript: each only when something changed.

import { createHash } from "node:crypto";
import {
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { dirname, join, relative } from "node:path";
import { typesEnvironment, writeAddonTypes } from "./addon-types.mjs";
import { addon, filesUnder, platform, projects, root, target } from "./paths.mjs";
import { needPrograms } from "./debian.mjs";
import { libraryOf } from "./platforms.mjs";
import { must, which } from "./run.mjs";
import { withSources } from "./sources.mjs";

/** Everything that demo, tests and checks need. */
export async function build() {
  await install();
  await needCompilers();
  await withSources(buildAddon);
  await writeAddonTypes();
  await buildTypeScript();
}

/** `npm ci` in a folder, if its package-lock.json is not the one that was installed there last. */
export async function install(folder = root) {
  if (Number(process.versions.node.split(".")[0]) < 20) {
    throw new Error(`Node.js 20 or later is needed; this is ${process.version}`);
  }
  const stamp = join(folder, "node_modules", ".syncguard-install");
  const wanted = digest([join(folder, "package-lock.json")], process.version);
  if (read(stamp) === wanted) return;
  const modules = lstatSync(join(folder, "node_modules"), { throwIfNoEntry: false });
  if (modules?.isSymbolicLink() === true) {
    throw new Error(
      "node_modules is a link, and npm would empty what it leads to: remove the link",
    );
  }
  console.log(folder === root ? "npm ci" : `npm ci (${relative(root, folder)})`);
  const args = ["ci", "--prefer-offline", "--no-audit", "--no-fund", "--loglevel=error"];
  // npm hands its settings on to what it runs. A package of the benchmarks asks for more than it needs.
  if (folder !== root) args.push("--engine-strict=false");
  await must("npm", args, { cwd: folder });
  writeFileSync(stamp, wanted);
}

/** The packages of the benchmarks and examples that tests start. */
export async function installProjects() {
  for (const folder of projects) await install(folder);
}

/** Cargo, and what it needs. */
export async function needCompilers() {
  if (!which("cargo")) {
    throw new Error("cargo is missing: install Rust (https://rustup.rs), then open a new shell");
  }
  await needPrograms([
    { command: ["cc", "gcc", "clang"], packages: ["gcc", "libc6-dev"], why: "compiles SQLite" },
  ]);
}

/** The addon, built by cargo and put into the folder of this platform's npm package. */
export async function buildAddon() {
  const args = ["build", "--release", "--locked", "--package", "syncguard-node"];
  const onPrint = onceCompiling(() => {
    console.log("cargo build --release (some minutes the first time)");
  });
  await must("cargo", args, { quiet: true, env: typesEnvironment(), onPrint });
  place(join(target, "release", libraryOf(platform)), addon);
}

/** Calls `say` once cargo compiles: there is nothing to say when it has nothing to do, however long it takes to find that out. */
export function onceCompiling(say) {
  let isSaid = false;
  return (printed) => {
    if (isSaid || !/^ *Compiling /m.test(printed)) return;
    isSaid = true;
    say();
  };
}

/** The Firestore emulator, for tests that start it; with the features that `cargo test` builds. */
export async function buildEmulator() {
  const args = [
    "build",
    "--workspace",
    "--all-features",
    "--locked",
    "--bin",
    "firestore-emulator",
  ];
  await must("cargo", args, { quiet: true });
}

/** dist/, if a source of it changed. */
export async function buildTypeScript() {
  const sources = [
    ...filesUnder(join(root, "npm", "syncguard")),
    ...["package.json", "tsconfig.json", "tsconfig.build.json", "index.d.ts"].map((name) =>
      join(root, name),
    ),
    ...filesUnder(join(root, "scripts"), (path) => path.endsWith("build-esm.mjs")),
  ].filter(existsSync);
  const stamp = join(root, "dist", ".stamp");
  const wanted = digest(sources, process.version);
  if (read(stamp) === wanted) return;
  console.log("npm run build:ts");
  rmSync(join(root, "dist"), { recursive: true, force: true });
  await must("npm", ["run", "--silent", "build:ts"]);
  writeFileSync(stamp, wanted);
}

/** Copies a built file. A process that has the old one mapped must keep it: the new one takes its name, not its place. */
export function place(from, to) {
  const source = statSync(from);
  const present = existsSync(to) && statSync(to);
  if (present && present.size === source.size && present.mtimeMs === source.mtimeMs) return;
  mkdirSync(dirname(to), { recursive: true });
  const temporary = `${to}.${process.pid}.tmp`;
  copyFileSync(from, temporary);
  utimesSync(temporary, source.atime, source.mtime);
  renameSync(temporary, to);
}

function digest(paths, salt) {
  const hash = createHash("sha256").update(salt);
  for (const path of [...paths].sort()) hash.update(`\0${path}\0`).update(readFileSync(path));
  return hash.digest("hex");
}

function read(path) {
  return existsSync(path) ? readFileSync(path, "utf8") : undefined;
}
