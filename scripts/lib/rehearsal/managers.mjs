// Package managers: how each installs `syncguard` into an empty folder, and how a program is run there.

import { join } from "node:path";
import { bin } from "../paths.mjs";
import { run } from "../run.mjs";
import { runtime } from "../runtimes.mjs";
import { shippingTool } from "../shipping.mjs";

const { execPath: node } = process;
const npmrc = (registry) => ({ ".npmrc": `registry=${registry}\n` });
const pnpm = [shippingTool("pnpm/pnpm")];
const yarn1 = [node, shippingTool("yarn/bin/yarn.js")];
const yarn4 = [node, shippingTool("@yarnpkg/cli-dist/bin/yarn.js")];

/**
 * Each has a program, the files that name the registry, what installs a version, and what runs `main.mjs`. The settings are those
 * of an application, but for the address of the registry, which has no TLS, and for the age of the release: Yarn 4 and Deno do
 * not install what was published within the last day.
 */
export const MANAGERS = {
  npm: {
    program: ["npm"],
    files: npmrc,
    install: (spec) => ["install", `syncguard@${spec}`],
    start: [node],
  },
  pnpm: {
    program: pnpm,
    files: npmrc,
    install: (spec) => ["add", `syncguard@${spec}`],
    start: [node],
  },
  "Yarn 1": {
    program: yarn1,
    files: npmrc,
    install: (spec) => ["add", `syncguard@${spec}`],
    start: [node],
  },
  "Yarn 4": {
    program: yarn4,
    files: (registry) => yarnrc(registry, "pnp"),
    install: (spec) => ["add", `syncguard@${spec}`],
    start: [...yarn4, "node"],
  },
  "Yarn 4 with node_modules": {
    program: yarn4,
    files: (registry) => yarnrc(registry, "node-modules"),
    install: (spec) => ["add", `syncguard@${spec}`],
    start: [node],
  },
  Bun: {
    program: [bin("bun")],
    files: npmrc,
    install: (spec) => ["add", `syncguard@${spec}`],
    start: [bin("bun")],
  },
  Deno: {
    program: [runtime("deno")],
    files: npmrc,
    install: (spec) => ["add", "--minimum-dependency-age=0", `npm:syncguard@${spec}`],
    start: [
      runtime("deno"),
      "run",
      "--allow-env",
      "--allow-read",
      "--allow-ffi",
      "--minimum-dependency-age=0",
    ],
  },
};

function yarnrc(registry, linker) {
  const settings = {
    npmRegistryServer: registry,
    unsafeHttpWhitelist: ["127.0.0.1"],
    nodeLinker: linker,
    npmMinimalAgeGate: 0,
    enableTelemetry: false,
  };
  // JSON is YAML.
  return { ".yarnrc.yml": JSON.stringify(settings) };
}

/**
 * Runs a program as somebody does who has only just got this machine: without settings, caches and variables of npm's.
 * Resolves to `{ code, output }`.
 */
export function asNewcomer([command, ...args], { cwd, home }) {
  const own = Object.keys(process.env).filter((name) => /^(npm|yarn|pnpm|bun|deno)_/i.test(name));
  const env = {
    ...Object.fromEntries(own.map((name) => [name, undefined])),
    // Package managers install nothing that changes a lock file where this is set.
    CI: undefined,
    HOME: home,
    // Yarn 1 looks for its cache in /usr/local/share when root runs it.
    XDG_CACHE_HOME: join(home, ".cache"),
    XDG_CONFIG_HOME: undefined,
    XDG_DATA_HOME: undefined,
    DENO_NO_UPDATE_CHECK: "1",
    SYNCGUARD_URL: undefined,
  };
  return run(command, args, { quiet: true, cwd, env });
}

/** As `asNewcomer`, but a non-zero exit code is an error with the output. */
export async function mustAsNewcomer(command, options) {
  const { code, output } = await asNewcomer(command, options);
  if (code !== 0) throw new Error(`$ ${command.join(" ")}\n${output}\nexit code ${code}`);
  return output;
}
