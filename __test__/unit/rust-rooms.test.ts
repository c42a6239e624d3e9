/** Which directions of imports between rooms of a crate are wrong. */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as circles from "../../scripts/lib/circles.mjs";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as rooms from "../../scripts/lib/rust-rooms.mjs";

const { rustImports } = circles as { rustImports: (path: string) => Map<string, Set<string>> };
const { checkRustRooms, misplaced } = rooms as {
  checkRustRooms: () => string;
  misplaced: (
    imports: Map<string, Set<string>>,
    folder: string,
    floors: string[][],
    stores: { names: string[]; highest: string; users?: string[] | undefined },
  ) => string[];
};

const FLOORS = [["tool", "text"], ["values"], ["queues", "beats"], ["calls"], ["queues/asker"]];
const STORES = { names: ["disk", "net"], highest: "queues" };
const FIRST =
  "mod tool; mod text; mod values; mod queues; mod beats; mod calls; mod disk; mod net;";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "syncguard-rooms-"));
});
afterEach(() => {
  rmSync(folder, { recursive: true });
});

/** What is wrong with a crate of these files, besides empty ones. */
function found(files: Record<string, string>, users?: string[]): string[] {
  const all = {
    "lib.rs": FIRST,
    "tool.rs": "",
    "text/mod.rs": "pub mod error;",
    "text/error.rs": "pub struct Error;",
    "values/mod.rs": "pub mod key;",
    "values/key.rs": "use crate::text::error::Error; pub struct Key;",
    "queues/mod.rs": "pub mod queue; pub mod asker;",
    "queues/queue.rs": "pub struct Queue;",
    "queues/asker.rs": "use crate::calls::run::Run; use super::queue::Queue;",
    "beats/mod.rs": "pub struct Beat;",
    "calls/mod.rs": "pub mod run;",
    "calls/run.rs": "use crate::queues::queue::Queue; pub struct Run;",
    "disk/mod.rs": "use crate::beats::Beat; pub struct Disk;",
    "net/mod.rs": "pub mod part; use crate::values::key::Key;",
    "net/part.rs": "use super::super::text::error::Error; pub struct Part;",
    ...files,
  };
  for (const [name, text] of Object.entries(all)) {
    const path = join(folder, name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
  }
  return misplaced(rustImports(join(folder, "lib.rs")), folder, FLOORS, { ...STORES, users });
}

test("rooms may use those below them, and a part of a room may be higher", () => {
  expect(found({})).toEqual([]);
});

test.each([
  ["up", "values/key.rs", "use crate::calls::run::Run;", "calls/run"],
  ["up, in the code", "values/key.rs", "fn f() { crate::calls::run::Run; }", "calls/run"],
  [
    "up, to a higher part of a room",
    "calls/run.rs",
    "use crate::queues::asker::A;",
    "queues/asker",
  ],
  ["across", "beats/mod.rs", "use crate::queues::queue::Queue;", "queues/queue"],
  ["from a room to a store", "calls/run.rs", "use crate::disk::Disk;", "disk"],
  ["from store to store", "disk/mod.rs", "use crate::net::part::Part;", "net/part"],
  [
    "from a store to what is not for stores",
    "disk/mod.rs",
    "use crate::calls::run::Run;",
    "calls/run",
  ],
])("an import %s is wrong", (_, file, text, used) => {
  const wrong = found({ [file]: text });
  expect(wrong).toHaveLength(1);
  expect(wrong[0]).toContain(`${file.replace(/(\/mod)?\.rs$/, "")} (`);
  expect(wrong[0]).toContain(`uses ${used} (`);
});

test("only rooms that are named may use a store", () => {
  const files = { "calls/run.rs": "use crate::disk::Disk; use crate::net::part::Part;" };
  expect(found(files)).toHaveLength(2);
  expect(found(files, ["calls"])).toEqual([]);
});

test("the rooms of this repository's crates keep to it", () => {
  expect(checkRustRooms()).toMatch(/floors of crates\/syncguard\/src, .*crates\/syncguard-node/);
});

test("a new file must be in a room", () => {
  expect(found({ "lib.rs": `${FIRST} mod new;`, "new.rs": "" })).toEqual(["new is in no room"]);
});

test("what the crate's index passes on counts where it is", () => {
  const wrong = found({
    "lib.rs": `${FIRST} pub use calls::run::Run;`,
    "values/key.rs": "use crate::Run;",
  });
  expect(wrong).toEqual(["values/key (values) uses calls/run (calls), which is not below it"]);
});
