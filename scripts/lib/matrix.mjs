// The servers and clients of __test__/matrix that are packages of npm: __test__/matrix/programs/package.json names them.

import { join } from "node:path";
import { FetchedPackages } from "./fetched.mjs";
import { matrixProject } from "./paths.mjs";
import { must } from "./run.mjs";

const POSTGRES = [13, 15, 18];

const packages = new FetchedPackages(matrixProject, makeLinks);

/** The folder with `bin`, `lib` and `share` of a PostgreSQL of that version. */
export const postgresFolder = (version) => packages.path(`postgres-${version}`, "native");

/** The program that serves a PGlite. */
export const pgliteServer = packages.path("@electric-sql/pglite-socket", "dist/scripts/server.js");

/** The folder of a client, by the name that its package has there. */
export const clientFolder = (name) => packages.path(name);

/** Makes sure that all of them are there. */
export async function needMatrix() {
  await packages.need();
}

/** A package of npm holds no links: each says in a file which ones its libraries need, and has a script that makes them. */
async function makeLinks(folder) {
  for (const version of POSTGRES) {
    const cwd = join(folder, "node_modules", `postgres-${version}`);
    await must(process.execPath, ["scripts/hydrate-symlinks.js"], { quiet: true, cwd });
  }
}
