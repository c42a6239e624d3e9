// What `npm test` leaves to `npm run test:all`: nothing that is asked nowhere.

import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { expect, test, vi } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as selection from "../../scripts/lib/selection.mjs";
import { stores } from "../support/backends";
import { otherOf, others, storesOf } from "../support/ways";

const { leftOut, isSelected, LONG_PROGRAMS } = selection as {
  leftOut: () => string[];
  isSelected: (program: string) => boolean;
  LONG_PROGRAMS: string[];
};

const behavior = join(import.meta.dirname, "../behavior");
const files = readdirSync(behavior).map((name) => join(behavior, name));

test("every way to a store is taken by some file of behaviours, and each file takes one", () => {
  const taken = files.map((file) => otherOf(file).map(([name]) => name));
  expect(taken.every((names) => names.length === 1)).toBe(true);
  expect(new Set(taken.flat())).toEqual(new Set(others.map(([name]) => name)));
});

test("everything is asked by test:all", () => {
  vi.stubEnv("SYNCGUARD_TESTS", "all");
  expect(storesOf(files[0])).toEqual(Object.entries(stores));
  expect(leftOut()).toEqual([]);
  expect(LONG_PROGRAMS.every(isSelected)).toBe(true);
});

test("what npm test leaves out is there", () => {
  vi.stubEnv("SYNCGUARD_TESTS", "");
  expect(LONG_PROGRAMS.some(isSelected)).toBe(false);
  expect(leftOut().length).toBeGreaterThan(0);
  const missing = leftOut().filter((path) => !existsSync(path.replace("/**", "")));
  expect(missing).toEqual([]);
});
