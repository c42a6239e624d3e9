/** The check of how long the documents are. */

import { expect, test } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as script from "../../scripts/lib/words.mjs";

const { checkWords, tooLong } = script as {
  checkWords: () => Promise<string>;
  tooLong: (
    pages: ReadonlyMap<string, string>,
    limits: { page: number; all: number; prose: number },
  ) => { faults: string[]; all: number; prose: number };
};

const text = `# Locks

Five words of prose here.

<!-- given
const hidden = 1;
-->

\`\`\`js run
const shown = hidden;
\`\`\`

| a | table |
| - | ----- |
`;
const pages = new Map([
  ["a page", text],
  ["a short page", "one two"],
]);

test("this repository's pages are not too long", async () => {
  await expect(checkWords()).resolves.toMatch(/^\d+ words, of which \d+ are prose$/);
});

test("all words count, and as prose those outside of comments, code and tables", () => {
  expect(tooLong(pages, { page: 31, all: 33, prose: 9 })).toEqual({
    faults: [],
    all: 33,
    prose: 9,
  });
});

test("a page that is too long is named, and so are all together", () => {
  const { faults } = tooLong(pages, { page: 30, all: 32, prose: 8 });
  expect(faults).toEqual([
    "a page has 31 words, and may have 30",
    "the pages have 33 words, and may have 32",
    "the pages have 9 words of prose, and may have 8",
  ]);
});
