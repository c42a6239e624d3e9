// This package as it is built in a folder: in this one, or in another checkout.

import { createRequire } from "node:module";
import { join } from "node:path";
import { root } from "../../scripts/lib/paths.mjs";

/** What an entry point of it exports, such as `syncguard/redis`. */
export const built = (folder, entry) => createRequire(join(folder, "package.json"))(entry);

/** The builds that take part, by name, each with its folder: this one, and the one that it is measured `against`. */
export const builds = (against) => [
  ["syncguard", root],
  ...(against === undefined ? [] : [["before", against]]),
];
