// Install, native addon, TypeScript: each only when something changed.

import { createHash } from "node:crypto";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { typesEnvironment, writeAddonTypes } from "./addon-types.mjs";
import { addon, filesUnder, root, target } from "./paths.mjs";
import { needPrograms } from "./debian.mjs";
import { must, which } from "./run.mjs";

/** Everything that demo, tests and checks need. */
export async function build() {
  await install();
  await needCompilers();
  await buildAddon();
  await writeAddonTypes();
  await buildTypeScript();
}

/** `npm ci`, if package-lock.json is not the one that was installed last. */
export async function install() {
  if (Number(process.versions.node.split(".")[0]) < 20) {
    throw new Error(`Node.js 20 or later is needed; this is ${process.version}`);
  }
  const stamp = join(root, "node_modules", ".syncguard-install");
  const wanted = digest([join(root, "package-lock.json")], process.version);
  if (read(stamp) === wanted) return;
  console.log("npm ci");
  await must("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"]);
  writeFileSync(stamp, wanted);
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
  // Nothing to say when there is nothing to do.
  const notice = setTimeout(() => {
    console.log("cargo build --release (some minutes the first time)");
  }, 2000);
  const options = { quiet: true, env: typesEnvironment() };
  await must("cargo", args, options).finally(() => clearTimeout(notice));
  place(join(target, "release", libraryName()), addon);
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

// A process that has the old file mapped must keep it: the new one takes its name, not its place.
function place(from, to) {
  const source = statSync(from);
  const present = existsSync(to) && statSync(to);
  if (present && present.size === source.size && present.mtimeMs === source.mtimeMs) return;
  mkdirSync(dirname(to), { recursive: true });
  const temporary = `${to}.${process.pid}.tmp`;
  copyFileSync(from, temporary);
  utimesSync(temporary, source.atime, source.mtime);
  renameSync(temporary, to);
}

function libraryName() {
  if (process.platform === "win32") return "syncguard_node.dll";
  return process.platform === "darwin" ? "libsyncguard_node.dylib" : "libsyncguard_node.so";
}

function digest(paths, salt) {
  const hash = createHash("sha256").update(salt);
  for (const path of [...paths].sort()) hash.update(`\0${path}\0`).update(readFileSync(path));
  return hash.digest("hex");
}

function read(path) {
  return existsSync(path) ? readFileSync(path, "utf8") : undefined;
}
