/** What the test backend does without the addon, the addon does in the same way. */

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { expect, test } from "vitest";
import type { core as Core } from "../../npm/syncguard/native/core";

type Inputs = Readonly<Record<"hashKey" | "normalize", { input: string }[]>> & {
  readonly formatFence: { input: number }[];
};
// Not imported: some strings are no valid Unicode.
const file = new URL("../../crates/syncguard/tests/vectors.json", import.meta.url);
const vectors = JSON.parse(readFileSync(file, "utf8")) as Inputs;

const require = createRequire(import.meta.url);
const native = (require("../../dist/native/core.js") as { core: typeof Core }).core;
const plain = (require("../../dist/testing/core.js") as { core: typeof Core }).core;

/** What a call gives, or how it fails. */
function outcome(run: () => unknown): unknown {
  try {
    return run();
  } catch (error) {
    const { code, message } = error as { code: string; message: string };
    return { code, message };
  }
}

function expectSame(run: (core: typeof Core) => unknown): void {
  expect(outcome(() => run(plain))).toEqual(outcome(() => run(native)));
}

const TEXTS = [
  ...vectors.hashKey.map(({ input }) => input),
  ...vectors.normalize.map(({ input }) => input),
  ...["", "a", "é", "é", "\ud800x", "k".repeat(512), "k".repeat(513), "é".repeat(257)],
];

test("keys, hashes and owners", () => {
  expect(TEXTS.length).toBeGreaterThan(20);
  for (const text of TEXTS) {
    expectSame((core) => core.hashKey(text));
    expectSame((core) => core.normalizeAndValidateKey(text));
    expectSame((core) => core.validateOwner(text));
  }
  for (const value of [undefined, null, 1, {}, Symbol("x")] as never[]) {
    expectSame((core) => core.normalizeAndValidateKey(value));
    expectSame((core) => core.validateLockId(value));
    expectSame((core) => core.validateOwner(value));
    expectSame((core) => core.validateTtl(value));
  }
});

test("lock ids, TTLs and fences", () => {
  const ids = Array.from({ length: 100 }, () => plain.generateLockId());
  expect(new Set(ids).size).toBe(100);
  for (const id of [...ids, "", "short", "x".repeat(22), "x".repeat(21) + "+"]) {
    expectSame((core) => core.validateLockId(id));
  }
  for (const ms of [
    1,
    0,
    -1,
    0.5,
    Number.NaN,
    Infinity,
    315_576_000_000_000,
    315_576_000_000_001,
  ]) {
    expectSame((core) => core.validateTtl(ms));
  }
  for (const { input } of vectors.formatFence) {
    expectSame((core) => core.formatFence(String(input)));
  }
  for (const text of ["", "x", "000000000000000000000001", "9".repeat(15), "9".repeat(16)]) {
    expectSame((core) => core.formatFence(text));
  }
  for (const fence of ["000000000000001", "090000000000000", "090000000000001"]) {
    expectSame((core) => core.isFenceNearLimit(fence));
  }
});
