/** The search of the site: whoever types the word of the field finds the page that is meant. */

import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import MiniSearch from "minisearch";
import { afterAll, beforeAll, expect, test } from "vitest";
import config from "../../docs/.vitepress/config.mjs";

const root = join(import.meta.dirname, "../..");
const site = mkdtempSync(join(tmpdir(), "syncguard-site-"));
let index: MiniSearch;

beforeAll(async () => {
  // As it is published, with the reference, whose many names must not stand in the way.
  await promisify(execFile)("npm", ["run", "docs", "--", "--outDir", site], { cwd: root });
  const chunks = join(site, "assets", "chunks");
  const name = readdirSync(chunks).find((each) => each.includes("localSearchIndex")) ?? "";
  const { default: json } = (await import(pathToFileURL(join(chunks, name)).href)) as {
    default: string;
  };
  // As VitePress's own search box does.
  const { search } = config.themeConfig ?? {};
  if (search?.provider !== "local") throw new Error("the site has no search of its own");
  index = MiniSearch.loadJSON(json, {
    fields: ["title", "titles", "text"],
    storeFields: ["title", "titles"],
    searchOptions: search.options?.miniSearch?.searchOptions ?? {},
  });
}, 900_000);
afterAll(() => rmSync(site, { recursive: true, force: true }));

test.each([
  ["cron", "/recipes/cron"],
  ["semaphore", "/slots"],
  ["mutex", "/recipes"],
  ["deadlock", "/several-keys"],
  ["drizzle", "/recipes/orm"],
  ["prisma", "/recipes/orm"],
  ["bullmq", "/recipes/bullmq"],
  ["idempotency", "/recipes/webhook"],
  ["transfer", "/recipes/transfer"],
  ["throttle", "/recipes"],
  ["redlock", "/redlock"],
  ["autoExtend", "/holding"],
])("%s finds %s among the first five", (word, page) => {
  const found = index.search(word).map(({ id }) => String(id).replace(/\.html.*$/, ""));
  expect(found.slice(0, 5)).toContain(page);
});
