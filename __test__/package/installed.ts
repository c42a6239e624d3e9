import { execFile } from "node:child_process";
import { mkdirSync, realpathSync, symlinkSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { delimiter, dirname, join, resolve } from "node:path";
import { temporaryFolder } from "../support/temp.js";

/** The project's folder. */
export const root = resolve(import.meta.dirname, "../..");

/** What a program did. */
export type Ended = { code: number; stdout: string; stderr: string };

/** An empty project that the packed packages were installed into. */
export type Installed = {
  folder: string;
  /** What `scripts/pack.mjs` printed. */
  packed: string;
  /** The tarballs that it printed: that of `syncguard` first. */
  tarballs: string[];
  /** Runs a file of the project with Node. */
  node: (...args: string[]) => Promise<Ended>;
  /** The same in another folder, seen from the project, with these variables besides. */
  nodeAt: (folder: string, env: NodeJS.ProcessEnv, ...args: string[]) => Promise<Ended>;
  /** Runs the TypeScript compiler in the project. */
  tsc: (...args: string[]) => Promise<Ended>;
  remove: () => void;
};

/**
 * Packs what is built and installs the tarballs into an empty folder: without the network, without npm's cache, and
 * with nothing on the PATH but Node. For a `release`, the package names all platforms.
 */
export async function installPackages({ release = false } = {}): Promise<Installed> {
  const { path, remove } = temporaryFolder();
  try {
    const folder = join(path, "project");
    const home = join(path, "home");
    const bin = join(path, "bin");
    for (const each of [folder, home, bin]) mkdirSync(each);
    symlinkSync(process.execPath, join(bin, "node"));
    // "local" is where locks are without the variable; with it nothing is said of that.
    const place = { HOME: home, XDG_STATE_HOME: join(home, "state"), SYNCGUARD_URL: "local" };
    const env = { PATH: bin, ...place };
    const nodeAt: Installed["nodeAt"] = (where, more, ...args) =>
      run(args, resolve(folder, where), { ...env, ...more });
    const node = (...args: string[]): Promise<Ended> => nodeAt(".", {}, ...args);

    const packages = join(path, "packages");
    const how = release ? ["--built", "--release"] : ["--built"];
    const packed = await run(["scripts/pack.mjs", ...how, packages], root, process.env);
    if (packed.code !== 0) throw new Error(packed.stdout + packed.stderr);
    const tarballs = packed.stdout.split("\n").filter((line) => line.endsWith(".tgz"));

    writeFileSync(join(folder, "package.json"), `${JSON.stringify({ private: true })}\n`);
    const options = ["--offline", "--no-audit", "--no-fund", "--cache", join(path, "cache")];
    const installed = await node(npmProgram(), "install", ...options, ...tarballs);
    if (installed.code !== 0) throw new Error(installed.stdout + installed.stderr);

    // The optional peer dependency, which an application with OpenTelemetry has.
    const peer = join(folder, "node_modules", "@opentelemetry");
    mkdirSync(peer);
    symlinkSync(join(root, "node_modules/@opentelemetry/api"), join(peer, "api"));

    const compiler = createRequire(import.meta.url).resolve("typescript/bin/tsc");
    const tsc = (...args: string[]): Promise<Ended> => node(compiler, ...args);
    return { folder, packed: packed.stdout, tarballs, node, nodeAt, tsc, remove };
  } catch (error) {
    remove();
    throw error;
  }
}

function run(args: string[], cwd: string, env: NodeJS.ProcessEnv): Promise<Ended> {
  return new Promise((done) => {
    execFile(process.execPath, args, { cwd, env, timeout: 600_000 }, (error, stdout, stderr) => {
      const code = error === null ? 0 : typeof error.code === "number" ? error.code : 1;
      done({ code, stdout, stderr });
    });
  });
}

/** npm's own script: npm itself may not be on a PATH that has only Node. */
export function npmProgram(): string {
  const running = process.env.npm_execpath;
  if (running?.endsWith("npm-cli.js") === true) return running;
  for (const folder of (process.env.PATH ?? "").split(delimiter)) {
    try {
      const npm = realpathSync(join(folder, "npm"));
      return npm.endsWith("npm-cli.js") ? npm : join(dirname(npm), "npm-cli.js");
    } catch {
      // Not in this folder.
    }
  }
  throw new Error("npm is not on the PATH");
}
