// npm run example fastify: builds, installs what the example needs, and starts it as its package.json says.
// With --built, from what is built already. Without a name it lists the examples.
//
// Most examples share a lock file and are linked to this folder. Next.js bundles what is linked, native code included, so that
// example gets the packages as they are published. The Forrst server has no package of its own: it needs only ours.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { delimiter, join } from "node:path";
import { parseArgs } from "node:util";
import { build, install, needCompilers } from "./lib/build.mjs";
import { pack } from "./lib/pack.mjs";
import { root, target } from "./lib/paths.mjs";
import { main, must } from "./lib/run.mjs";

const folder = join(root, "examples");
const names = readdirSync(folder).filter((name) => existsSync(join(folder, name, "README.md")));

function list() {
  const width = Math.max(...names.map((name) => name.length));
  const lines = names.map((name) => {
    const [, title] = /^# (.*)$/m.exec(readFileSync(join(folder, name, "README.md"), "utf8"));
    return `  ${name.padEnd(width)}  ${title}`;
  });
  return ["npm run example NAME starts one of these:", ...lines].join("\n");
}

async function installPacked(cwd) {
  const { main: own, platforms } = await pack(join(root, "packages"));
  const tarballs = [own, ...platforms.map(({ path }) => path)];
  const args = ["install", "--no-save", "--no-package-lock", "--no-audit", "--prefer-offline"];
  await must("npm", [...args, ...tarballs], { cwd });
}

/** Makes everything that an example needs. Resolves to the command that starts it. */
async function prepare(name, isBuilt) {
  const own = join(folder, name);
  if (existsSync(join(own, "Cargo.toml"))) {
    if (!isBuilt) await needCompilers();
    return ["cargo", "run", "--locked", "--package", name];
  }
  if (!isBuilt) await build();
  if (!existsSync(join(own, "package.json"))) return [process.execPath, "server.mjs"];
  const { workspaces } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  if (workspaces.includes(name)) await install(folder);
  else await installPacked(own);
  // As `npm start` would, which does not hand on a SIGTERM: the example would go on without it.
  const { scripts } = JSON.parse(readFileSync(join(own, "package.json"), "utf8"));
  if (scripts.prestart) await must("npm", ["run", "--silent", "prestart"], { cwd: own });
  return scripts.start.split(" ");
}

await main(async () => {
  const { values, positionals } = parseArgs({
    options: { built: { type: "boolean" } },
    allowPositionals: true,
  });
  const [name, ...rest] = positionals;
  if (name === undefined) {
    console.log(list());
    return 0;
  }
  if (!names.includes(name)) throw new Error(`there is no example ${name}\n${list()}`);
  if (rest.length > 0) throw new Error(`one example at a time: npm run example ${name}`);
  const [command, ...args] = await prepare(name, values.built);
  const own = join(folder, name);
  const bins = [own, folder].map((each) => join(each, "node_modules", ".bin"));
  const child = spawn(command, args, {
    cwd: own,
    stdio: "inherit",
    env: {
      ...process.env,
      PATH: [...bins, process.env.PATH].join(delimiter),
      CARGO_TARGET_DIR: target,
    },
    // Programs of packages are scripts there.
    shell: process.platform === "win32",
  });
  // Ctrl-C reaches both; whoever stops this process means the example.
  process.on("SIGINT", () => {});
  process.on("SIGTERM", () => child.kill("SIGTERM"));
  const [code] = await once(child, "exit");
  return code ?? 1;
});
