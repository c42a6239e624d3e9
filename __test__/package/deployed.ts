/** Where what was built of a project runs: nothing is installed there but the binary. */

import { cpSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runInThisContext } from "node:vm";
import { afterAll, beforeAll, expect } from "vitest";
import { temporaryFolder } from "../support/temp.js";
import { asFunction, documents, quickStart } from "./documents.js";
import { type Installed, installPackages } from "./installed.js";

/** What the quick start prints. */
export const EXPECTED = /^written under fence \d{15}\n$/;

export type Deployment = {
  /** The project. The quick start is in it, as `app.mjs`, and for CommonJS as `function.mjs`. */
  installed: Installed;
  /** Its folder. */
  folder: string;
  /** The path of what is so called in it. */
  inProject: (name: string) => string;
  /** The package with the binary for this platform. */
  binary: string;
  /** The folder in which the project cannot be reached. */
  path: string;
  /** Runs a file of that folder, which must print nothing to stderr, and gives what it printed. */
  run: (file: string) => Promise<string>;
  remove: () => void;
};

/** Deploys before the tests of a file, and removes all after them. What this gives is there while they run. */
export function deployBefore(): Deployment {
  const deployed = {} as Deployment;
  beforeAll(async () => {
    Object.assign(deployed, await deploy());
  }, 600_000);
  afterAll(() => {
    deployed.remove();
  });
  return deployed;
}

/** Installs the packed packages, and deploys the binary. */
async function deploy(): Promise<Deployment> {
  const installed = await installPackages();
  const { folder } = installed;
  const deployed = temporaryFolder();
  const names = readdirSync(join(folder, "node_modules"));
  const binary = names.find((name) => name.startsWith("syncguard-")) as string;
  const ofBinary = (place: string): string => join(place, "node_modules", binary);
  cpSync(ofBinary(folder), ofBinary(deployed.path), { recursive: true });
  writeFileSync(join(folder, "app.mjs"), quickStart);
  writeFileSync(join(folder, "function.mjs"), asFunction(quickStart, true));
  const run = async (file: string): Promise<string> => {
    const { code, stdout, stderr } = await installed.node(join(deployed.path, file));
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    return stdout;
  };
  const remove = (): void => {
    installed.remove();
    deployed.remove();
  };
  const inProject = (name: string): string => join(folder, name);
  return { installed, folder, inProject, binary, path: deployed.path, run, remove };
}

/** The settings that docs/bundlers.md has for a tool: what stands as code in its line of the list. */
export function settingsFor(tool: string): Record<string, unknown> {
  const lines = (documents.get("docs/bundlers.md") ?? "").split("\n");
  const line = lines.find((each) => each.startsWith(`- **${tool}**: `));
  if (line === undefined) throw new Error(`there is no line for ${tool}`);
  const code = [...line.matchAll(/`(.*?)`/g)].map(([, text]) => text);
  return runInThisContext(`({ ${code.join(", ")} })`) as Record<string, unknown>;
}
