/** On which stores a behaviour is tested, and by which ways to them. */

import { readdirSync } from "node:fs";
import { basename, dirname } from "node:path";
import { type Opener, stores } from "./backends";

/** Each store, reached natively. */
const NATIVE = [
  "SQLite file",
  "a test backend",
  "PostgreSQL at a URL",
  "Redis at a URL",
  "Redis Cluster at a URL",
  "Firestore by options",
];

type Named = [name: string, open: Opener];

const natives = Object.entries(stores).filter(([name]) => NATIVE.includes(name));
export const others = Object.entries(stores).filter(([name]) => !NATIVE.includes(name));

/**
 * Every way in `npm run test:all`. In `npm test` each store natively, and one other way for each file of behaviours: they take turns,
 * by their names.
 */
export function storesOf(file: string | undefined): Named[] {
  if (process.env.SYNCGUARD_TESTS === "all") return Object.entries(stores);
  return [...natives, ...otherOf(file)];
}

/** The other way that a file takes. */
export function otherOf(file = ""): Named[] {
  if (basename(dirname(file)) !== "behavior") return [];
  const files = readdirSync(dirname(file)).sort();
  const turn = files.indexOf(basename(file)) % others.length;
  return others.slice(turn, turn + 1);
}
