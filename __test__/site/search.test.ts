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

/** The pages found, each once, in their order. */
function pagesFor(words: string): string[] {
  const found = index.search(words).map(({ id }) => String(id).replace(/\.html.*$/, ""));
  return [...new Set(found)];
}

const WORDS: readonly (readonly [words: string, page: string])[] = [
  // What locks are called.
  ["fencing token", "/concepts"],
  ["lease", "/concepts"],
  ["ttl", "/concepts"],
  ["mutex", "/recipes"],
  ["semaphore", "/slots"],
  ["multiple locks", "/several-keys"],
  ["deadlock", "/several-keys"],
  ["leader election", "/leader"],
  ["exactly once", "/once"],
  ["timeout", "/waiting"],
  ["autoExtend", "/holding"],
  ["blocked event loop", "/holding"],
  // What is asked of them, and not there.
  ["reentrant", "/faq"],
  ["read-write lock", "/faq"],
  ["rate limit", "/faq"],
  ["throttle", "/faq"],
  // What people have.
  ["SETNX", "/migrating/async-lock"],
  ["SET NX", "/migrating/async-lock"],
  ["advisory lock", "/migrating/advisory-locks"],
  ["redlock", "/redlock"],
  // What they want to do.
  ["cron", "/recipes/cron"],
  ["idempotency", "/recipes/webhook"],
  ["webhook", "/recipes/webhook"],
  ["transfer", "/recipes/transfer"],
  ["graceful shutdown", "/recipes/sigterm"],
  ["fake timers", "/testing"],
  // What they use.
  ["drizzle", "/recipes/orm"],
  ["prisma", "/recipes/orm"],
  ["bullmq", "/recipes/bullmq"],
  ["nestjs", "/recipes/nestjs"],
  ["nextjs", "/recipes/nextjs"],
  ["serverless", "/recipes/lambda"],
  ["kubernetes", "/recipes/sigterm"],
  ["opentelemetry", "/observability"],
];

test.each(WORDS)("%s finds %s first", (words, page) => {
  expect(pagesFor(words)[0]).toBe(page);
});

test.each([...WORDS.map(([words]) => words), "createRedisBackend", "LockError", "acquire"])(
  "%s finds the pages before the API reference",
  (words) => {
    const isReference = pagesFor(words).map((page) => page.startsWith("/reference/"));
    expect(isReference).toEqual([...isReference].sort());
  },
);
