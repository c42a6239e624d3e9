// A type's name means one thing in its crate: whoever reads `State` need not ask whose.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./paths.mjs";
import { must } from "./run.mjs";

// Those that there are: what each store has under the same name, said with the store's. None is added.
const KNOWN = new Set(
  ["Failure", "Lookup", "Plan", "Transport"].map((name) => `crates/syncguard ${name}`),
);

/** Fails when two files of a crate have a struct, an enum or a trait of the same name, tests aside. */
export async function checkTypeNames() {
  const { output } = await must("git", ["ls-files", "crates/*/src/*", "verify/*/src/*"], {
    quiet: true,
  });
  const places = new Map();
  for (const file of output.split("\n")) {
    if (!file.endsWith(".rs") || /tests(\/|\.rs$)/.test(file)) continue;
    const [code] = readFileSync(join(root, file), "utf8").split(/^#\[cfg\(test\)\]\nmod /m);
    const crate = file.split("/src/", 1)[0];
    for (const [, name] of code.matchAll(/^(?:pub(?:\([^)]*\))? )?(?:struct|enum|trait) (\w+)/gm)) {
      const key = `${crate} ${name}`;
      places.set(key, (places.get(key) ?? new Set()).add(file));
    }
  }
  const twice = [...places].filter(([name, files]) => files.size > 1 && !KNOWN.has(name));
  if (twice.length === 0) return `${places.size} names`;
  throw new Error(twice.map(([name, files]) => `${name}: ${[...files].join(" ")}`).join("\n"));
}
