/** How the site of the documents renders Markdown. */

import { join } from "node:path";
import { expect, test } from "vitest";
import { createMarkdownRenderer } from "vitepress";
import config from "../../docs/.vitepress/config.mjs";

// In a piece of its own, so that the check of citations does not look for these pages.
const MD = ".md";
const page = `page${MD}`;
const documents = join(import.meta.dirname, "../../docs");
const renderer = await createMarkdownRenderer(documents, config.markdown);
const render = (text: string): string =>
  renderer.render(text, { path: join(documents, page), relativePath: page });

test("a space between a word in bold and code is kept, which Vue drops if it is a line break", () => {
  expect(render("one **or**\n`two`")).toContain("<strong>or</strong> <code");
});

test("short code is kept in one line, long code is not", () => {
  expect(render("`--owner`")).toMatch(/<code[^>]* class="whole"/);
  expect(render("`try { … } finally { await held.release(); }`")).not.toContain("whole");
});

test("what tests need beside a sample is not shown", () => {
  const sample =
    "<!-- given\nconst of = () => 1;\n-->\n\n```js\nof();\n```\n\n<!-- then\nof() > 0;\n-->\n";
  expect(render(sample)).not.toMatch(/given|then|=&gt;/);
});

test.each([
  ["a page", `api${MD}#cancel`, "./api.html#cancel"],
  ["the reference", "../index.d.ts", "/reference/syncguard/"],
  ["a file", "grafana/syncguard.json", "/blob/main/docs/grafana/syncguard.json"],
  ["a file outside of docs", "../README.md#install", "/blob/main/README.md#install"],
])("a link to %s leads somewhere", (_, href, target) => {
  expect(render(`[there](${href})`)).toContain(`${target}"`);
});

test("a cell knows the name of its column, except among figures", () => {
  const table = render("| option | what `it` is |\n| --- | --- |\n| `ttlMs` | how long |\n");
  expect(table).toContain('<td data-column="what it is">how long</td>');
  const figures = "| store | grants | lost |\n| --- | ---: | ---: |\n| redis | 2 | 0 |\n";
  expect(render(figures)).not.toContain("data-column");
});
