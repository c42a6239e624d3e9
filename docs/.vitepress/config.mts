/** The site of the documents in this folder: `npm run docs` builds it, `npm run docs:dev` shows it while you write. */

import { existsSync, readFileSync, readdirSync } from "node:fs";
import { join, posix, resolve, sep } from "node:path";
import { slug } from "github-slugger";
import { type DefaultTheme, defineConfig } from "vitepress";
import { linkReference, REFERENCE, referenceSidebar } from "./reference.mjs";
import { nameColumns } from "./tables.mjs";

/** Code in a line of text that is not broken; on a telephone, two thirds of a line. */
const LONGEST_WHOLE = 24;

const documents = resolve(import.meta.dirname, "..");
const repository = "https://github.com/syncguard-native/syncguard";

/** All pages but those that another page lists, by their titles here. A page that does not exist is left out. */
const sections: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  Start: {
    "/stores": "Which store",
    "/getting-started/redis": "Redis",
    "/getting-started/postgres": "PostgreSQL",
    "/getting-started/firestore": "Firestore",
    "/getting-started/sqlite": "SQLite",
    "/migrating": "Coming from SyncGuard 2.x",
  },
  Use: {
    "/concepts": "Concepts",
    "/api": "The API by example",
    "/waiting": "Waiting for a lock",
    "/holding": "Holding a lock",
    "/several-keys": "Several keys",
    "/slots": "At most N: a semaphore",
    "/readers-and-writers": "Readers and writers",
    "/leader": "One leader: election",
    "/guards": "Guards",
    "/once": "Once per period",
    "/errors": "Errors",
    "/testing": "Testing",
    "/bundlers": "Bundlers",
    "/faq": "Questions and answers",
  },
  "Change over": {
    "/redlock": "From redlock",
    "/migrating/redlock-universal": "From redlock-universal",
    "/migrating/redis-semaphore": "From redis-semaphore",
    "/migrating/async-lock": "From async-lock and SET NX",
    "/migrating/advisory-locks": "From advisory locks",
    "/migrating/cron-guards": "From ShedLock and cron guards",
    "/migrating/side-by-side": "Three programs side by side",
    "/alternatives": "Beside other libraries",
  },
  Recipes: {
    "/recipes": "All recipes",
    "/recipes/cron": "Cron job once per period",
    "/recipes/webhook": "Webhook: idempotency",
    "/recipes/transfer": "A transfer between two accounts",
    "/recipes/long-job": "A job of 20 minutes",
    "/recipes/running-jobs": "A migration and running jobs",
    "/recipes/orm": "Prisma, Drizzle, Kysely, Knex, TypeORM",
    "/recipes/fences": "DynamoDB and MongoDB",
    "/recipes/bullmq": "BullMQ: a limit per group",
    "/recipes/nestjs": "NestJS",
    "/recipes/nextjs": "Next.js",
    "/recipes/lambda": "AWS Lambda",
    "/recipes/sigterm": "SIGTERM in Docker and Kubernetes",
  },
  Run: {
    "/production": "Going to production",
    "/operations": "Operations",
    "/observability": "Observability",
    "/dashboard": "The dashboard",
    "/cli": "The command line",
    "/benchmarks": "Benchmarks",
    "/reliability": "Reliability",
    "/reliability/runs": "Runs",
    "/reliability/failovers": "Failovers",
    "/reliability/matrix": "The fault matrix",
    "/reliability/mutations": "Mutations",
  },
  Reference: { [`/${REFERENCE}/syncguard/index`]: "Every name, with its type" },
  "Stores in full": {
    "/redis": "Redis",
    "/postgres": "PostgreSQL",
    "/firestore": "Firestore",
    "/sqlite": "SQLite",
    "/tried": "Servers and clients",
    "/format": "What is stored",
  },
  More: {
    "/rust": "From Rust",
    "/forrst": "Forrst servers",
    "/threads": "Threads",
    "/decisions/README": "Decisions",
  },
};

const isThere = (link: string): boolean => existsSync(join(documents, `${link}.md`));
const sidebar: DefaultTheme.SidebarItem[] = Object.entries(sections).map(([text, pages]) => ({
  text,
  items: Object.entries(pages).flatMap(([link, title]) =>
    isThere(link) ? [{ text: title, link }] : [],
  ),
}));
everyPageIsListed();

/** How pages are found. */
const searchOptions = {
  fuzzy: 0.2,
  prefix: true,
  boost: { title: 4, text: 2, titles: 1 },
  /** The site has the text of this function alone: it can use nothing around it. */
  boostDocument: (id: string, _term: string, stored?: Record<string, unknown>): number => {
    // The names in the reference, which are many, come after all that the pages say of them.
    if (id.startsWith("/reference/")) return 0.001;
    // What is for people who examine or compare comes after what users of a lock read.
    const isAside =
      /^\/(alternatives|benchmarks|decisions|format|migrating|reliability|side-by-side)/.test(id);
    // A page about a word comes before sections that mention it.
    const isTop = (stored?.titles as string[] | undefined)?.length === 0;
    return (isTop ? 2 : 1) * (isAside ? 0.6 : 1);
  },
};

export default defineConfig({
  title: "SyncGuard",
  description: "Distributed locks with fences, on Redis, PostgreSQL, Firestore and SQLite",
  lang: "en",
  // Browsers would ask for an icon that is not there.
  head: [["link", { rel: "icon", href: "data:," }]],
  // Reproducible: a page's date would be that of the build's clone.
  lastUpdated: false,
  themeConfig: {
    nav: [
      { text: "Start", link: "/getting-started/redis" },
      { text: "API", link: "/api" },
      { text: "Reference", link: `/${REFERENCE}/syncguard/` },
      { text: "Operations", link: "/operations" },
      { text: "Repository", link: repository },
    ],
    sidebar: { [`/${REFERENCE}/`]: referenceSidebar(documents), "/": sidebar },
    outline: [2, 3],
    search: { provider: "local", options: { miniSearch: { searchOptions } } },
    footer: { message: "MIT licence" },
  },
  markdown: {
    // Those that VitePress has by default are too pale on its ground.
    theme: { light: "github-light-high-contrast", dark: "github-dark-high-contrast" },
    // As on GitHub, so that one link works in both places.
    anchor: { slugify: (heading) => slug(heading) },
    config: (md) => {
      md.core.ruler.push("links-out", ({ tokens, env }) => {
        const page = (env as { relativePath: string }).relativePath;
        for (const token of tokens.flatMap(({ children }) => children ?? [])) {
          if (token.type !== "link_open") continue;
          const href = token.attrGet("href") ?? "";
          token.attrSet("href", outwards(page, href));
        }
      });
      linkReference(md, documents);
      nameColumns(md);
      // Vue drops a line break between two elements, such as a word in bold and a link, and with it the space.
      md.renderer.rules.softbreak = () => " ";
      // Browsers break lines at hyphens, and `--owner` would become two words. What is short is kept in one piece.
      const code = md.renderer.rules.code_inline;
      md.renderer.rules.code_inline = (tokens, index, options, env, self) => {
        const token = tokens[index];
        if (token !== undefined && token.content.length <= LONGEST_WHOLE)
          token.attrJoin("class", "whole");
        return code?.(tokens, index, options, env, self) ?? "";
      };
      // What tests need stands in comments, and is neither shown nor found.
      const html = md.renderer.rules.html_block;
      md.renderer.rules.html_block = (tokens, index, options, env, self) =>
        (html?.(tokens, index, options, env, self) ?? tokens[index]?.content ?? "").replace(
          /<!--.*?-->\n?/gs,
          "",
        );
      // A picture on a page of its own takes part in the theme; on GitHub it is an ordinary image.
      const image = md.renderer.rules.image;
      md.renderer.rules.image = (tokens, index, options, env, self) => {
        const token = tokens[index];
        const source = token?.attrGet("src") ?? "";
        const page = (env as { relativePath: string }).relativePath;
        if (source.endsWith(".svg")) return inlined(page, source, token?.content ?? "");
        return image?.(tokens, index, options, env, self) ?? "";
      };
    },
  },
});

/** Nobody finds a page that is in no list. */
function everyPageIsListed(): void {
  const listed = new Set(Object.values(sections).flatMap((pages) => Object.keys(pages)));
  for (const name of readdirSync(documents, { recursive: true, encoding: "utf8" })) {
    const page = `/${name.split(sep).join("/")}`.replace(/\.md$/, "");
    if (!name.endsWith(".md") || page === "/index") continue;
    if (page.startsWith("/decisions/") || page.startsWith(`/${REFERENCE}/`)) continue;
    if (!listed.has(page)) throw new Error(`docs${page}.md is in no list of this file`);
  }
}

/** A link that leaves this folder, or leads to a file that is no page, leads to the repository. */
function outwards(page: string, href: string): string {
  if (/^([a-z]+:|#|\/)/.test(href)) return href;
  const target = posix.join("docs", posix.dirname(page), href);
  // The same, for readers of the repository.
  if (target === "index.d.ts") return `/${REFERENCE}/syncguard/`;
  const isPage = target.startsWith("docs/") && /\.md(#|$)/.test(target);
  return isPage ? href : `${repository}/blob/main/${target}`;
}

function inlined(page: string, source: string, description: string): string {
  const file = join(documents, posix.dirname(page), source);
  const svg = readFileSync(file, "utf8")
    // The colours of a picture that stands alone. Here they are the theme's.
    .replace(/<style>.*?<\/style>/s, "")
    .replace(/<!--.*?-->/gs, "")
    .replace("<svg ", `<svg role="img" aria-label="${attribute(description)}" `);
  return `<span class="diagram" v-pre>${svg.replace(/\n\s*/g, "")}</span>`;
}

function attribute(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll('"', "&quot;").replaceAll("<", "&lt;");
}
