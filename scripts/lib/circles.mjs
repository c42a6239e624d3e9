// Which files of a Rust crate import each other in a circle. (For TypeScript, dpdm finds that out.)
//
// An import is a path in a `use` or in the code. It leads to the file that has the item: what a module passes on with
// `use` is followed to where it comes from. Declaring a module (`mod x;`) is no import, and tests do not count.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { root } from "./paths.mjs";

/** Fails when files of a crate import each other in a circle. */
export function checkRustCircles() {
  const found = crateRoots().flatMap((path) => circles(rustImports(path)));
  if (found.length > 0) {
    const lines = found.map((files) => files.map((file) => relative(root, file)).join(" "));
    throw new Error(lines.map((line) => `these files import each other: ${line}`).join("\n"));
  }
  return "none";
}

/** The first file of each of our crates, and of what stands by itself and is compiled with another crate. */
function crateRoots() {
  const first = ["src/lib.rs", "src/main.rs", "main.rs", "mod.rs"];
  return ["crates", "verify"].flatMap((folder) =>
    readdirSync(join(root, folder)).flatMap((name) => {
      const paths = first.map((file) => join(root, folder, name, file));
      return paths.filter(existsSync).slice(0, 1);
    }),
  );
}

/**
 * What each file of a crate imports from others of it.
 *
 * @param {string} path the crate's `lib.rs` or `main.rs`, or the `mod.rs` of a part of it, whose `crate` is outside
 * @returns {Map<string, Set<string>>} by path
 */
export function rustImports(path) {
  const top = module(path, undefined);
  const imports = new Map();
  for (const one of modules(top)) {
    imports.set(one.file, new Set(imported(one).filter((file) => file !== one.file)));
  }
  return imports;
}

/**
 * The sets of files that lead to each other, each sorted.
 *
 * @param {Map<string, Set<string>>} imports
 * @returns {string[][]}
 */
export function circles(imports) {
  // Tarjan's strongly connected components.
  const seen = new Map();
  const stack = [];
  const found = [];
  const visit = (file) => {
    const state = { index: seen.size, low: seen.size, onStack: true };
    seen.set(file, state);
    stack.push(file);
    for (const next of imports.get(file) ?? []) {
      const known = seen.get(next);
      if (!known) state.low = Math.min(state.low, visit(next).low);
      else if (known.onStack) state.low = Math.min(state.low, known.index);
    }
    if (state.low === state.index) {
      const set = stack.splice(stack.indexOf(file));
      for (const member of set) seen.get(member).onStack = false;
      if (set.length > 1) found.push(set.sort());
    }
    return state;
  };
  for (const file of imports.keys()) if (!seen.has(file)) visit(file);
  return found.sort();
}

/** A module that has a file, with those below it. */
function module(file, parent) {
  const isFolder = ["lib.rs", "main.rs", "mod.rs"].includes(basename(file));
  const folder = isFolder ? dirname(file) : file.replace(/\.rs$/, "");
  const code = withoutTests(withoutText(readFileSync(file, "utf8")));
  const one = { file, parent, code, children: new Map(), names: new Map() };
  for (const [, name] of code.matchAll(/\bmod\s+(\w+)\s*;/g)) {
    const paths = [join(folder, `${name}.rs`), join(folder, name, "mod.rs")];
    const path = paths.find(existsSync);
    if (path) one.children.set(name, module(path, one));
  }
  for (const [, tree] of code.matchAll(USE)) {
    for (const { path, name } of expanded(tree)) one.names.set(name, path);
  }
  return one;
}

function* modules(one) {
  yield one;
  for (const child of one.children.values()) yield* modules(child);
}

const USE = /\buse\s+([^;]+);/g;
const PATH = /(?<![\w:.])[A-Za-z_]\w*(?:\s*::\s*[A-Za-z_]\w*)+/g;

/** The files that a module imports from. */
function imported(one) {
  const files = [];
  const add = (path) => {
    const file = fileOf(one, path);
    if (file) files.push(file);
  };
  const inCode = [...one.code.replace(USE, "").matchAll(PATH)].map(([path]) =>
    path.split("::").map((part) => part.trim()),
  );
  for (const path of inCode) add(path);
  for (const [name, path] of one.names) {
    // A module by its name: what is taken from it stands in the code.
    if (!inCode.some(([head]) => head === name)) add(path);
  }
  return files;
}

/** Where what a path names is, if that is in this crate. */
function fileOf(from, path, depth = 0) {
  let [at, rest] = [from, path];
  if (path[0] === "crate") {
    while (at.parent) at = at.parent;
    if (basename(at.file) === "mod.rs") return undefined;
    rest = path.slice(1);
  } else if (path[0] === "self" || path[0] === "super") {
    rest = path[0] === "self" ? path.slice(1) : path;
    for (; rest[0] === "super"; rest = rest.slice(1)) {
      if (!at.parent) return undefined;
      at = at.parent;
    }
  } else if (!at.children.has(path[0]) && !at.names.has(path[0])) {
    return undefined;
  }
  for (; at.children.has(rest[0]); rest = rest.slice(1)) at = at.children.get(rest[0]);
  const passedOn = at.names.get(rest[0]);
  if (passedOn && depth < 8 && !(at === from && passedOn.join() === path.join())) {
    const further = fileOf(at, [...passedOn, ...rest.slice(1)], depth + 1);
    // Names of other crates that it passes on are its own.
    return further ?? (at === from ? undefined : at.file);
  }
  return at.file;
}

/** The paths of a `use`, and the names that they get. */
function expanded(tree, before = []) {
  const open = tree.indexOf("{");
  if (open === -1) {
    const [path, as] = tree.trim().split(/\s+as\s+/);
    const parts = [...before, ...path.split("::").map((part) => part.trim())];
    if (parts.at(-1) === "self") parts.pop();
    if (parts.at(-1) === "") return [];
    return [{ path: parts.filter((part) => part !== "*"), name: as ?? parts.at(-1) }];
  }
  const start = tree
    .slice(0, open)
    .split("::")
    .map((part) => part.trim())
    .filter(Boolean);
  return branches(tree.slice(open + 1, tree.lastIndexOf("}"))).flatMap((branch) =>
    expanded(branch, [...before, ...start]),
  );
}

/** What commas divide, but for those in braces. */
function branches(text) {
  const parts = [""];
  let depth = 0;
  for (const character of text) {
    depth += character === "{" ? 1 : character === "}" ? -1 : 0;
    if (character === "," && depth === 0) parts.push("");
    else parts[parts.length - 1] += character;
  }
  return parts.filter((part) => part.trim() !== "");
}

/** Code without its comments, texts and the places that items may be seen from. */
function withoutText(code) {
  return code
    .replace(
      /\/\/[^\n]*|\/\*[^]*?\*\/|b?r(#*)"[^]*?"\1|b?"(?:\\[^]|[^"\\])*"|'(?:\\[^']+|[^'\\])'/g,
      (text) => (text.startsWith("/") ? " " : '""'),
    )
    .replace(/\bpub\s*\([^)]*\)/g, "pub");
}

/** Code without what is compiled for tests alone. */
function withoutTests(code) {
  const mark = /#\[cfg\((?:test|all\(test\b[^\]]*)\)\]/.exec(code);
  if (!mark) return code;
  let end = mark.index + mark[0].length;
  for (let depth = 0; end < code.length; end += 1) {
    const character = code[end];
    if (character === "{") depth += 1;
    if (character === "}") depth -= 1;
    if (depth === 0 && (character === ";" || character === "}")) break;
  }
  return withoutTests(code.slice(0, mark.index) + code.slice(end + 1));
}
