// What TypeScript knows of the addon, written from what the addon is: `native/exports.ts` from the types that napi's
// macros note while cargo compiles, `native/constants.ts` from the values that the addon gives. They are tracked, so
// that types can be checked without a build; `npm run build` writes them, `npm run check` finds them stale.

import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { addon, root, target } from "./paths.mjs";

const native = join(root, "npm", "syncguard", "native");

// Cargo writes them only when it compiles, and compiles anew where the folder is another one: all clones have the same.
const notes = join(target, "addon-types");

/** The environment in which cargo must compile the addon. */
export function typesEnvironment() {
  mkdirSync(notes, { recursive: true });
  return { NAPI_TYPE_DEF_TMP_FOLDER: notes };
}

/** Writes the files that are not what the built addon makes them. */
export async function writeAddonTypes() {
  for (const { path, text } of await staleFiles()) writeFileSync(path, text);
}

/** Fails when a file is not what the built addon makes it. */
export async function checkAddonTypes() {
  const stale = await staleFiles();
  if (stale.length === 0) return;
  const names = stale.map(({ path }) => path.slice(root.length + 1)).join(" and ");
  throw new Error(`${names}: not what the addon exports; run npm run build and commit the change`);
}

async function staleFiles() {
  const { constants } = createRequire(import.meta.url)(addon);
  const files = [
    await generated("exports.ts", "What the addon exports", exportsSource(readNotes())),
    await generated("constants.ts", "What the core says of itself", constantsSource(constants())),
  ];
  return files.filter(({ path, text }) => !existsSync(path) || readFileSync(path, "utf8") !== text);
}

async function generated(name, what, source) {
  const path = join(native, name);
  const head = `/** ${what}, made by \`npm run build\` from crates/syncguard-node: do not edit. */\n\n`;
  // Not there before `npm ci`.
  const { format, resolveConfig } = await import("prettier");
  const options = { ...(await resolveConfig(path)), filepath: path };
  return { path, text: await format(head + source, options) };
}

function readNotes() {
  const file = join(notes, "syncguard-node");
  if (!existsSync(file)) {
    throw new Error(
      "cargo has compiled the addon without its types: cargo clean --release -p syncguard-node",
    );
  }
  const lines = readFileSync(file, "utf8").split("\n").filter(Boolean);
  return lines.map((line) => JSON.parse(line));
}

/** The TypeScript of what napi's macros have noted. */
export function exportsSource(items) {
  const methodsOf = (name) => items.filter((item) => item.kind === "impl" && item.name === name);
  const declarations = items
    .filter(({ kind }) => kind !== "impl")
    // The order of files is nobody's.
    .sort((one, other) => (one.name < other.name ? -1 : 1))
    .map((item) => item.js_doc + declaration(item, methodsOf(item.name)));
  return declarations.join("\n\n");
}

function declaration({ kind, name, def }, methods) {
  switch (kind) {
    case "interface":
      return `export interface ${name} {\n${def}\n}`;
    case "struct": {
      const members = methods.map((part) => withNames(part.def)).sort();
      // Two classes are two types, whatever methods they have.
      return `export declare class ${name} {\n#native;\n${[def, ...members].join("\n")}\n}`;
    }
    case "fn":
      return `export declare ${withNames(def)};`;
    case "enum":
      return `export const enum ${name} {\n${def}\n}`;
    case "string_enum":
      return `export type ${name} = ${[...def.matchAll(/'[^']*'/g)].join(" | ")};`;
    default:
      throw new Error(`${name}: no word for a ${kind} of napi`);
  }
}

/** Rust takes names for parameters that JavaScript reserves. */
function withNames(def) {
  return def.replace(/([(] ?|, )(function|arguments)(\??: )/g, "$1$2_$3");
}

function constantsSource(constants) {
  return `export const constants = ${JSON.stringify(constants)} as const;`;
}
