/** What counts as a circle of imports between files of Rust. */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as module from "../../scripts/lib/circles.mjs";

const { circles, rustImports } = module as {
  circles: (imports: Map<string, Set<string>>) => string[][];
  rustImports: (path: string) => Map<string, Set<string>>;
};

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "syncguard-circles-"));
});
afterEach(() => {
  rmSync(folder, { recursive: true });
});

/** The circles of a crate with these files. */
function found(files: Record<string, string>, first = "lib.rs"): string[][] {
  for (const [name, text] of Object.entries(files)) {
    const path = join(folder, name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
  }
  const sets = circles(rustImports(join(folder, first)));
  return sets.map((files) => files.map((file) => relative(folder, file)));
}

test("two files that use each other are a circle", () => {
  const files = {
    "lib.rs": "mod a; mod b; mod c;",
    "a.rs": "use crate::b::B; pub struct A;",
    "b.rs": "use super::{a::A, c::C}; pub struct B;",
    "c.rs": "pub struct C;",
  };
  expect(found(files)).toEqual([["a.rs", "b.rs"]]);
});

test("a path in the code counts, and so does one through another file", () => {
  const files = {
    "lib.rs": "mod a; mod b; mod c;",
    "a.rs": "pub fn a() { crate::b::b() }",
    "b.rs": "use crate::c; pub fn b() { c::c() }",
    "c.rs": "pub fn c() { super::a::a() }",
  };
  expect(found(files)).toEqual([["a.rs", "b.rs", "c.rs"]]);
});

test("a file below that uses its parent, which uses it, is a circle", () => {
  const files = {
    "lib.rs": "mod a;",
    "a.rs": "mod below; use below::Below; pub struct A(Below);",
    "a/below.rs": "pub struct Below; impl From<super::A> for Below {}",
  };
  expect(found(files)).toEqual([["a.rs", "a/below.rs"]]);
});

test("what a module passes on counts where it is", () => {
  const files = {
    "lib.rs": "mod store;",
    "store/mod.rs": "mod a; mod b; pub use a::A; pub use self::b::{B as Renamed};",
    "store/a.rs": "pub struct A;",
    "store/b.rs": "use super::A; pub struct B; fn of(_: crate::store::A) {}",
  };
  expect(found(files)).toEqual([]);
});

test("declarations, tests, comments, texts and visibility are no imports", () => {
  const files = {
    "lib.rs": "mod a; mod b;",
    "a.rs": [
      "use crate::b::B;",
      "// use crate::a;",
      "/// See [`b`](crate::b).",
      "pub(in crate::a) struct A;",
      "#[cfg(test)]",
      "mod tests { use super::*; }",
    ].join("\n"),
    "b.rs": [
      'pub struct B; const TEXT: &str = "crate::a::A"; const RAW: &str = r#"crate::a::A"#;',
      "#[cfg(test)] use crate::a::A;",
      "#[cfg(test)] mod tests { use crate::a::A; fn test() { if true { crate::a::a() } } }",
      "fn quote() -> char { '\"' }",
    ].join("\n"),
  };
  expect(found(files)).toEqual([]);
});

test("a part of a crate has its own circles, and what it imports of the crate is outside", () => {
  const files = {
    "mod.rs": "mod a; mod b; use crate::c::C;",
    "a.rs": "use crate::backend::B; use super::b::B;",
    "b.rs": "use super::a::A; use crate::c::C;",
  };
  expect(found(files, "mod.rs")).toEqual([["a.rs", "b.rs"]]);
  expect(found({ ...files, "b.rs": "use crate::a::A;" }, "mod.rs")).toEqual([]);
});
