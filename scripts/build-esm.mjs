// Writes the page of the dashboard as a module, so that bundles have it, too.
//
// Then writes the ESM entry points: dist/*.mjs and *.d.mts that re-export every name of the CommonJS
// files one by one, so that both formats share one LockError and one state.
// The names are read from the declarations that tsc has just written.

import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const dist = join(root, "dist");
const { exports: points } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const entries = Object.keys(points)
  .filter((name) => name !== "./package.json")
  .map((name) => (name === "." ? "index" : name.slice(2)));

const page = join(root, "npm", "syncguard", "dashboard", "page");
const assets = { HTML: "index.html", CSS: "page.css", JS: "page.js" };
const lines = Object.entries(assets).map(([name, file]) => {
  return `exports.${name} = ${JSON.stringify(readFileSync(join(page, file), "utf8"))};\n`;
});
writeFileSync(join(dist, "dashboard", "assets.js"), `"use strict";\n${lines.join("")}`);

const files = entries.map((entry) => join(dist, `${entry}.d.ts`));
const program = ts.createProgram(files, {
  module: ts.ModuleKind.Node16,
  moduleResolution: ts.ModuleResolutionKind.Node16,
  target: ts.ScriptTarget.ES2022,
});
const checker = program.getTypeChecker();

for (const [index, entry] of entries.entries()) {
  const source = program.getSourceFile(files[index]);
  const module = source && checker.getSymbolAtLocation(source);
  if (!module) throw new Error(`${files[index]} is missing or exports nothing: run tsc first`);
  const values = [];
  const types = [];
  // What Node.js takes for the default of a CommonJS file is all of it, so it is exported by its other name.
  let own;
  const targets = new Map();
  for (const symbol of checker.getExportsOfModule(module)) {
    const target = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
    if (symbol.name === "default") own = target;
    else {
      targets.set(target, symbol.name);
      (target.flags & ts.SymbolFlags.Value ? values : types).push(symbol.name);
    }
  }
  const list = (names) =>
    names
      .sort()
      .map((name) => `  ${name},\n`)
      .join("");
  if (own !== undefined) values.push(`${targets.get(own)} as default`);
  const code = `export {\n${list(values)}} from "./${entry}.js";\n`;
  const typeCode = types.length > 0 ? `export type {\n${list(types)}} from "./${entry}.js";\n` : "";
  writeFileSync(join(dist, `${entry}.mjs`), code);
  writeFileSync(join(dist, `${entry}.d.mts`), code + typeCode);
}
