/** docs/migrating/side-by-side.md: how many lines the same program takes with each library. That they run is documents.test.ts's. */

import { expect, test } from "vitest";
import { blocksOf, documents } from "./documents.js";

const text = documents.get("docs/migrating/side-by-side.md") ?? "";
const [table = "", ...rest] = text.split(/^## /m);
const sections = rest.filter((section) => section.includes("```"));
const rows = [...table.matchAll(/^\| \[(.*?)\]\(.*?\) +\| +(\d+) \| +(\d+) \| +(\d+) \|$/gm)].map(
  ([, name, ...counts]) => ({ name, counts: counts.map(Number) }),
);

/** Lines that have something in them. */
const linesOf = (code: string): number => code.split("\n").filter((line) => line.trim()).length;

test("the table has the lines of each program", () => {
  const counted = sections.map((section) => ({
    name: section.split("\n")[0],
    counts: blocksOf("", section).map(({ code }) => linesOf(code)),
  }));
  expect(rows).toEqual(counted);
  expect(rows).toHaveLength(3);
});

test.each(rows)("$name takes no more lines here than with others", ({ counts }) => {
  const [redlock = 0, semaphore = 0, here = Infinity] = counts;
  expect(here).toBeLessThanOrEqual(Math.min(redlock, semaphore));
});
