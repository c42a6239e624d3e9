// What the package exports: exactly the documented names, each of them once.

import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { DOCUMENTED } from "./exports-list.mjs";
import { root } from "./paths.mjs";

/** Compares every entry point, in both formats and in its types, with the documented list. */
export async function checkExports() {
  const faults = [];
  // Resolved from the project itself, as a user's import would be.
  const require = createRequire(join(root, "package.json"));
  const { exports: entries } = require("./package.json");
  const declared = declaredNames(entries);
  const loaded = [];
  for (const [entry, { values, types }] of Object.entries(DOCUMENTED)) {
    const specifier = entry === "." ? "syncguard" : `syncguard/${entry.slice(2)}`;
    const esm = await import(pathToFileURL(join(root, entries[entry].import.default)));
    const cjs = require(specifier);
    const names = Object.keys(esm).filter(
      (name) => name !== "default" && name !== "module.exports",
    );
    faults.push(
      ...compare(`${specifier} (import)`, values, names),
      ...compare(`${specifier} (require)`, values, Object.keys(cjs)),
      ...compare(`${specifier} (types)`, [...values, ...types], declared[entry]),
      ...names
        .filter((name) => esm[name] !== cjs[name])
        .map((name) => `${specifier}: ${name} is not the same for import and require`),
      ...aliases(specifier, esm, names),
    );
    loaded.push({ specifier, esm, names });
  }
  faults.push(...doubles(loaded));
  const extra = Object.keys(entries).filter((e) => e !== "./package.json" && !DOCUMENTED[e]);
  faults.push(...extra.map((entry) => `entry point ${entry} is not documented`));
  if (faults.length > 0) throw new Error(faults.join("\n"));
  return `${loaded.length} entry points, ${loaded.reduce((n, { names }) => n + names.length, 0)} values`;
}

function compare(where, wanted, found) {
  return [
    ...wanted.filter((name) => !found.includes(name)).map((name) => `${where}: ${name} is missing`),
    ...found
      .filter((name) => !wanted.includes(name))
      .map((name) => `${where}: ${name} is exported and not documented`),
  ];
}

function aliases(specifier, module, names) {
  const seen = new Map();
  const faults = [];
  for (const name of names) {
    const value = module[name];
    if (typeof value !== "function" && typeof value !== "object") continue;
    if (seen.has(value)) faults.push(`${specifier}: ${name} and ${seen.get(value)} are one value`);
    seen.set(value, name);
  }
  return faults;
}

// One name, one thing; createLock alone is each backend's own.
function doubles(loaded) {
  const [first, ...others] = loaded;
  return others.flatMap(({ specifier, esm, names }) =>
    names
      .filter((name) => name !== "createLock" && name in first.esm && first.esm[name] !== esm[name])
      .map((name) => `${specifier}: ${name} is not that of ${first.specifier}`),
  );
}

function declaredNames(entries) {
  const require = createRequire(join(root, "package.json"));
  const ts = require("typescript");
  const files = Object.fromEntries(
    Object.keys(DOCUMENTED).map((entry) => [entry, join(root, entries[entry].import.types)]),
  );
  const { ModuleKind, ModuleResolutionKind } = ts;
  const program = ts.createProgram(Object.values(files), {
    module: ModuleKind.Node16,
    moduleResolution: ModuleResolutionKind.Node16,
    types: [],
  });
  const checker = program.getTypeChecker();
  return Object.fromEntries(
    Object.entries(files).map(([entry, file]) => {
      const symbol = checker.getSymbolAtLocation(program.getSourceFile(file));
      return [entry, checker.getExportsOfModule(symbol).map(({ name }) => name)];
    }),
  );
}
