/** The check of what comments and documents cite. */

import { describe, expect, test } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as citations from "../../scripts/lib/citations.mjs";

const { checkCitations, citationFaults } = citations as {
  checkCitations: () => Promise<string>;
  citationFaults: (files: ReadonlyMap<string, string>) => Promise<string[]>;
};

// In pieces, so that the check does not take them for citations of this file.
const MD = ".md";
const guide = `docs/guide${MD}`;
const missing = `docs/missing${MD}`;
const number = ["ADR", "014"].join("-");

function faults(name: string, text: string): Promise<string[]> {
  const document = "# Guide\n\n## Lock ids\n\n```sh\n# no heading\n```\n\n## `close()` and why\n";
  return citationFaults(
    new Map([
      [guide, document],
      [name, text],
    ]),
  );
}

test("this repository cites nothing that is not there", async () => {
  await expect(checkCitations()).resolves.toMatch(/^\d+ files$/);
});

describe("a comment", () => {
  test.each([
    ["a document", `// See ${guide}.`],
    ["a document beside it", `// See guide${MD}.`],
    ["a section", `/** As in ${guide}, "Lock ids". */`],
    ["a section over two lines", `/// The form (${guide}, "Lock\n    /// ids").`],
    ["a section in SQL", `-- As in ${guide},\n-- "Lock ids".`],
    ["two sections", `// ${guide}, "Lock ids" and "Guide"`],
  ])("may cite %s", async (_, text) => {
    expect(await faults("docs/source.rs", text)).toEqual([]);
  });

  test.each([
    ["a document", `//\n// See ${missing}.`, `2: ${missing} does not exist`],
    ["a section", `// ${guide}, "Keys"`, `1: ${guide} has no heading "Keys"`],
    ["a second section", `// ${guide}, "Guide" and "Keys"`, `1: ${guide} has no heading "Keys"`],
    [
      "a section over two lines",
      `/// ${guide}, "Lock\n/// keys"`,
      `1: ${guide} has no heading "Lock keys"`,
    ],
    ["code as a section", `// ${guide}, "no heading"`, `1: ${guide} has no heading "no heading"`],
    [
      "a number",
      `// ${number}`,
      `1: ${number} is not in this repository: cite a page in docs/decisions`,
    ],
  ])("must not cite %s that is not there", async (_, text, fault) => {
    expect(await faults("src/source.rs", text)).toEqual([`src/source.rs:${fault}`]);
  });
});

describe("a link", () => {
  test.each([
    ["a heading of another document", `[ids](guide${MD}#lock-ids)`],
    ["one with code in it", `[why](guide${MD}#close-and-why)`],
    ["a heading of its own", "# What for\n\n[here](#what-for)"],
    ["the second of two headings of one name", "## Why\n\n## Why\n\n[below](#why-1)"],
    ["a heading with a link", `## As [Redis](guide${MD}) does\n\n[above](#as-redis-does)`],
    ["another site", `https://example.com/guide${MD}#none [there](https://example.com/#none)`],
    ["no document", "[line](source.rs#L7)"],
  ])("may lead to %s", async (_, text) => {
    expect(await faults(`docs/page${MD}`, text)).toEqual([]);
  });

  test.each([
    ["another document", `guide${MD}#keys`, `docs/guide${MD}`],
    ["what only looks like a heading", `guide${MD}#no-heading`, `docs/guide${MD}`],
    ["the same document", "#keys", `docs/page${MD}`],
  ])("must not lead to a heading that is not there: %s", async (_, href, target) => {
    const fragment = href.replace(/^.*#/, "");
    expect(await faults(`docs/page${MD}`, `\n[there](${href})`)).toEqual([
      `docs/page${MD}:2: ${target} has no heading #${fragment}`,
    ]);
  });
});

describe("a link by a name", () => {
  test.each([
    ["a name that the document gives", "[Redis][redis] and [it][]\n\n[redis]: x.png\n[it]: x.png"],
    ["one in other letters", "[Redis][The\nServer]\n\n[the server]: x.png"],
    ["a text with brackets", "[`a[0]` of [b]][list]\n\n[list]: x.png"],
    ["nothing in code", "`take[a][b]`\n\n```js\nconst last = rows[0][1];\n```"],
    ["nothing in a comment", "<!-- [a][b] -->"],
    ["a place", `[ids](guide${MD}) [none]`],
  ])("may lead to %s", async (_, text) => {
    expect(await faults(`docs/page${MD}`, text)).toEqual([]);
  });

  test.each([
    ["[there][none]", "none"],
    ["[none][]", "none"],
    ["[there][none]\n\n```\n[none]: x.png\n```", "none"],
  ])("must not lead to a name that is given to nothing: %j", async (text, name) => {
    expect(await faults(`docs/page${MD}`, `\n${text}`)).toEqual([
      `docs/page${MD}:2: no link is called [${name}]`,
    ]);
  });

  test("is none in a comment of a program", async () => {
    expect(await faults("src/source.ts", "// rows[0][1] of [a][b]")).toEqual([]);
  });
});
