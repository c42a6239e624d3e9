/** The check that nobody calls a hash slot a slot. */

import { expect, test } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as script from "../../scripts/lib/glossary.mjs";

const { checkGlossary, slotsAlone } = script as {
  checkGlossary: () => Promise<string>;
  slotsAlone: (name: string, text: string) => string[];
};
const LINK = "crates/syncguard/src/redis/connection/link.rs";

test("this repository calls no hash slot a slot", async () => {
  await expect(checkGlossary()).resolves.toMatch(/^\d{3,} files$/);
});

test.each([
  [
    "in a file about clusters",
    LINK,
    "/// Where the slot\n/// is by now.",
    "Where the slot is by now.",
  ],
  [
    "in a sentence about nodes",
    "crates/a.rs",
    "// A lock. One node has the slot.",
    "One node has the slot.",
  ],
  ["in a comment in Lua", "crates/a.lua", "-- Slots of the cluster.", "Slots of the cluster."],
  [
    "in an error text",
    "crates/a.rs",
    'f("a cluster has \\\n    this slot")',
    "a cluster has this slot",
  ],
  ["in a document", "docs/redis.md", "A.\n\n- Each node has slots.\n", "Each node has slots."],
])("%s, a slot alone is found", (_, name, text, sentence) => {
  expect(slotsAlone(name, text)).toEqual([`${name} calls a hash slot a slot: ${sentence}`]);
});

test.each([
  ["a hash slot", LINK, "/// Hash slots, and the hash slot of a node."],
  ["a slot of a key", LINK, "/// In a cluster, all slots of a key are on one node."],
  ["a slot where nothing speaks of clusters", "crates/a.rs", "/// Takes the first free slot."],
  ["a command", LINK, "/// The answer to CLUSTER SLOTS, for which a user needs cluster|slots."],
  ["code", LINK, "/// `slot` of a node.\nlet slot = node;\n"],
  ["a block of code in a document", "docs/faq.md", "```ts\nconst slot = node;\n```\n"],
  ["Node.js", "docs/faq.md", "Node.js gives the slot back."],
])("%s is allowed", (_, name, text) => {
  expect(slotsAlone(name, text)).toEqual([]);
});
