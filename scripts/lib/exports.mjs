// What the package exports at run time. (Which names there are is in index.d.ts, which `npm run check` compares with the types.)

import { createRequire } from "node:module";
import { join } from "node:path";
import { root } from "./paths.mjs";

/** Fails when an entry point differs between import and require, or when one name is two things, or two names are one. */
export async function checkExports() {
  // Resolved from the project itself, as a user's import would be.
  const require = createRequire(join(root, "package.json"));
  const { exports: entries } = require("./package.json");
  const faults = [];
  const first = require("syncguard");
  let count = 0;
  for (const entry of Object.keys(entries).filter((name) => name !== "./package.json")) {
    const specifier = join("syncguard", entry);
    const { default: _, ...cjs } = require(specifier);
    const imported = Object.entries(await import(specifier));
    const esm = Object.fromEntries(
      imported.filter(([name]) => name !== "default" && name !== "module.exports"),
    );
    const seen = new Map();
    for (const name of new Set([...Object.keys(cjs), ...Object.keys(esm)])) {
      const value = esm[name];
      const fault = (text) => faults.push(`${specifier}: ${name} ${text}`);
      if (!(name in esm && value === cjs[name])) fault("is not the same for import and require");
      // Each store's own.
      if (name !== "createLock" && (first[name] ?? value) !== value)
        fault("is not that of syncguard");
      if (typeof value === "object" || typeof value === "function") {
        if (seen.has(value)) fault(`and ${seen.get(value)} are one value`);
        seen.set(value, name);
      }
      count += 1;
    }
  }
  if (faults.length > 0) throw new Error(faults.join("\n"));
  return `${count} values`;
}
