// npm run rehearse [folder]: publishes a release to a registry of its own on this machine, in the way of
// .github/workflows/release.yml, and installs it from there as its users do. The release is made of what is built, with stand-ins
// for other platforms, or it is that in the folder. RELEASING.md says what this cannot show.

import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from "node:fs";
import { readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { build } from "./lib/build.mjs";
import { needPrograms } from "./lib/debian.mjs";
import { pack } from "./lib/pack.mjs";
import { bin, root } from "./lib/paths.mjs";
import { publishOrder } from "./lib/publish.mjs";
import { asNewcomer, MANAGERS, mustAsNewcomer } from "./lib/rehearsal/managers.mjs";
import { startRegistry } from "./lib/rehearsal/registry.mjs";
import { needTools } from "./lib/rehearsal/tools.mjs";
import { main, must } from "./lib/run.mjs";
import { needRuntimes } from "./lib/runtimes.mjs";
import { needShipping } from "./lib/shipping.mjs";
import { addStandIns, packFiles } from "./lib/stand-ins.mjs";

/** What the first program of the package's README prints. */
const PRINTED = /^nobody else works on the report; write it under fence \d{15}\n$/;

const README = "README.md";

/** The last version of the TypeScript library whose users upgrade. */
const BEFORE = "2.5.0";

await main(async () => {
  const [given] = process.argv.slice(2);
  if (given === undefined) await build();
  await needTools();
  await needRuntimes();
  await needShipping();
  await needPrograms([
    { command: "redis-server", packages: ["redis-server"], why: "keeps the locks of the programs" },
  ]);
  const folder = mkdtempSync(join(tmpdir(), "syncguard-rehearsal-"));
  let registry, redis;
  try {
    registry = await startRegistry(join(folder, "registry"));
    // It needs packages, which are there only now.
    const { startServer } = await import("../bench/redis/server.mjs");
    redis = await startServer();
    await rehearse({ folder, given, registry, redis });
  } finally {
    await redis?.stop();
    await registry?.stop();
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  }
});

async function rehearse({ folder, given, registry, redis }) {
  const packages = given === undefined ? await makeRelease(folder) : resolve(given);
  await publishAnother(folder, registry);
  const release = await publish(packages, registry);
  const program = await firstProgram(release.at(-1).path, redis.port);
  const { version } = release.at(-1).manifest;
  const place = { folder, registry, program, version, redis };
  const failed = [];
  for (const [name, task] of [
    ...Object.keys(MANAGERS).map((name) => [name, () => installWith(name, place)]),
    ["upgrade by version number", () => upgrade(place)],
    ["a platform without a binary", () => withoutBinary(place)],
  ]) {
    try {
      console.log(`ok      ${name}: ${await task()}`);
    } catch (error) {
      failed.push(name);
      console.log(`FAILED  ${name}\n${error.message}\n`);
    }
  }
  if (failed.length > 0) throw new Error(`failed: ${failed.join(", ")}`);
}

/** Packs what is built, and stand-ins for what is not. */
async function makeRelease(folder) {
  const packages = join(folder, "packages");
  await pack(packages, { release: true });
  const standIns = await addStandIns(packages);
  console.log(`stand-ins for ${standIns.join(", ")}`);
  return packages;
}

/** Publishes, under the tag `latest`, what stands for the version before: a package without code. */
async function publishAnother(folder, { publisher }) {
  const before = join(folder, "before");
  mkdirSync(before);
  const manifest = { name: "syncguard", version: BEFORE };
  await packFiles(before, manifest, {});
  const args = ["publish", join(before, `syncguard-${BEFORE}.tgz`), "--tag", "latest"];
  await must("npm", args, { quiet: true, env: publisher });
}

/** The steps of the workflow, and the same once more, as after a run that ended half-way. Resolves to what was published. */
async function publish(packages, { publisher, url }) {
  const release = await publishOrder(packages);
  const script = join(root, "scripts", "publish.mjs");
  const steps = [["--dry-run"], [], []];
  const outputs = [];
  for (const options of steps) {
    const args = [script, packages, ...options];
    outputs.push((await must(process.execPath, args, { quiet: true, env: publisher })).output);
  }
  const lines = release.map(({ manifest }) => `${manifest.name} ${manifest.version}`);
  expect("the packages that a first run publishes", outputs[1].trim(), lines.join("\n"));
  const again = lines.map((line) => `${line} is published already`).join("\n");
  expect("those that a second run publishes", outputs[2].trim(), again);

  const response = await fetch(`${url}syncguard`);
  const { "dist-tags": tags } = await response.json();
  const { version } = release.at(-1).manifest;
  const expected = version.includes("-") ? { latest: BEFORE, next: version } : { latest: version };
  expect("the tags", JSON.stringify(tags), JSON.stringify(expected));
  console.log(`ok      published: ${lines.join(", ")}; tags ${JSON.stringify(tags)}`);
  return release;
}

/** The first program of the README in the package, on our server. */
async function firstProgram(tarball, port) {
  const { output: readme } = await must("tar", ["-xzOf", tarball, `package/${README}`], {
    quiet: true,
  });
  const [, code] = /^```js[^\n]*\n(.*?)^```$/ms.exec(readme);
  if (!code.includes("redis://localhost:6379")) throw new Error("the program names no server");
  return code.replace("redis://localhost:6379", `redis://127.0.0.1:${port}`);
}

/** A folder with nothing in it but these files, and a home of its own. */
function emptyFolder({ folder }, name, files) {
  const place = join(folder, name.toLowerCase().replaceAll(" ", "-"));
  const cwd = join(place, "project");
  const home = join(place, "home");
  for (const each of [cwd, home]) mkdirSync(each, { recursive: true });
  for (const [file, text] of Object.entries(files)) writeFileSync(join(cwd, file), text);
  return { cwd, home };
}

async function installWith(name, place) {
  const { program, files, install, start } = MANAGERS[name];
  const own = emptyFolder(place, name, {
    ...files(place.registry.url),
    "package.json": '{ "private": true, "type": "module" }\n',
    "main.mjs": place.program,
  });
  const version = (await mustAsNewcomer([...program, "--version"], own)).split("\n")[0];
  const began = Date.now();
  await mustAsNewcomer([...program, ...install(place.version)], own);
  const seconds = ((Date.now() - began) / 1000).toFixed(1);
  const printed = await mustAsNewcomer([...start, "main.mjs"], own);
  if (!PRINTED.test(printed)) throw new Error(`the program printed: ${printed}`);
  return `${version}, installed in ${seconds} s, ${printed.trim()}`;
}

/** A project that has the version before, in which then only the number is another one. */
async function upgrade(place) {
  const source = join(root, "__test__", "types", "upgrade.mts");
  const manifest = (version) =>
    JSON.stringify({ private: true, dependencies: { syncguard: version } });
  const own = emptyFolder(place, "upgrade", {
    ...MANAGERS.npm.files(place.registry.url),
    "package.json": manifest(`^${BEFORE}`),
    "main.mts": readFileSync(source, "utf8"),
  });
  const installed = () =>
    JSON.parse(readFileSync(join(own.cwd, "node_modules/syncguard/package.json"), "utf8")).version;
  await mustAsNewcomer(["npm", "install"], own);
  expect("the version before", installed(), BEFORE);
  writeFileSync(join(own.cwd, "package.json"), manifest(place.version));
  await mustAsNewcomer(["npm", "install"], own);
  expect("the version after", installed(), place.version);
  for (const client of ["ioredis", "postgres", "@google-cloud/firestore"]) {
    const link = join(own.cwd, "node_modules", client);
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(join(root, "node_modules", client), link, "dir");
  }
  const options = ["--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022"];
  const libraries = ["--lib", "es2022,esnext.disposable", "--types", "node", "--preserveSymlinks"];
  const types = ["--typeRoots", join(root, "node_modules/@types")];
  await mustAsNewcomer([bin("tsc"), "main.mts", ...options, ...libraries, ...types], own);
  const printed = await mustAsNewcomer(["node", "main.mjs", String(place.redis.port)], own);
  expect("what it prints", printed, "as in 2.5\n");
  return `${BEFORE} to ${place.version}; it compiles and runs`;
}

/** What is said where there is no package for the platform. */
async function withoutBinary(place) {
  const own = emptyFolder(place, "without a binary", {
    ...MANAGERS.npm.files(place.registry.url),
    "package.json": '{ "private": true, "type": "module" }\n',
    "freebsd.cjs": 'Object.defineProperty(process, "platform", { value: "freebsd" });\n',
    "main.mjs": place.program,
  });
  const elsewhere = ["--os", "freebsd", "--cpu", "x64"];
  await mustAsNewcomer(["npm", "install", `syncguard@${place.version}`, ...elsewhere], own);
  const names = readdirSync(join(own.cwd, "node_modules")).filter((name) => /^[a-z]/.test(name));
  expect("what is installed", names.join(), "syncguard");
  const { code, output } = await asNewcomer(["node", "-r", "./freebsd.cjs", "main.mjs"], own);
  const message = /The native part of syncguard for freebsd-x64 could not be loaded\.[^\n]*/.exec(
    output,
  );
  if (code === 0 || !message?.[0].includes("npm run pack packages"))
    throw new Error(`exit code ${code}, and the cure is not named:\n${output}`);
  return message[0];
}

function expect(what, is, should) {
  if (is !== should) throw new Error(`${what}: ${is}\nin place of: ${should}`);
}
