/** Names in code lead to the API reference, which `npm run docs` makes of the types. It is in no clone, so no link can be written down. */

import { existsSync, readFileSync, readdirSync } from "node:fs";
import { basename, join, sep } from "node:path";
import type { DefaultTheme, MarkdownRenderer } from "vitepress";

/** The folder of the reference in that of the documents, as TypeDoc is told in typedoc.json. */
export const REFERENCE = "reference";

/** What programs import, in the order of the sidebar. */
const ENTRY_POINTS = [
  "syncguard",
  ...["redis", "postgres", "firestore", "sqlite"].map((store) => `syncguard/${store}`),
  ...["common", "testing", "dashboard", "otel", "redlock", "forrst"].map(
    (name) => `syncguard/${name}`,
  ),
];

/** Members, which have no page of their own, and the type that describes them. */
const MEMBERS: Readonly<Record<string, string>> = {
  "backend.lock()": "LockMethod",
  "acquire()": "AcquireMethod",
  "backend.acquire()": "AcquireMethod",
  "backend.once()": "OnceMethod",
  "backend.lead()": "SyncGuardBackend",
  "forceRelease()": "SyncGuardBackend",
  "releaseAll()": "SyncGuardBackend",
  "backend.releaseAll()": "SyncGuardBackend",
  "backend.close()": "SyncGuardBackend",
  "backend.release()": "SyncGuardBackend",
  "backend.extend()": "SyncGuardBackend",
  "isLocked()": "SyncGuardBackend",
};

/** Links the first time that a section of a page names something of the reference. */
export function linkReference(md: MarkdownRenderer, documents: string): void {
  const links = linksOf(join(documents, REFERENCE));
  md.core.ruler.push("reference", (state) => {
    const { relativePath: page } = state.env as { relativePath?: string };
    // A title that is asked for alone is on no page.
    if (page === undefined || page.startsWith(`${REFERENCE}/`)) return;
    let linked = new Set<string>();
    for (const [index, token] of state.tokens.entries()) {
      if (token.type === "heading_open" && token.tag === "h2") linked = new Set();
      if (token.type !== "inline" || state.tokens[index - 1]?.type === "heading_open") continue;
      let inLink = false;
      token.children = (token.children ?? []).flatMap((child) => {
        if (child.type === "link_open" || child.type === "link_close")
          inLink = child.type === "link_open";
        const link = child.type === "code_inline" && linkFor(links, child.content, page);
        if (inLink || !link || linked.has(link)) return [child];
        linked.add(link);
        const open = new state.Token("link_open", "a", 1);
        open.attrSet("href", link);
        return [open, child, new state.Token("link_close", "a", -1)];
      });
    }
  });
}

/** The one that is meant: what has one name in several entry points is, on a store's page, that of the store. */
function linkFor(
  links: ReadonlyMap<string, readonly string[]>,
  code: string,
  page: string,
): string | undefined {
  const found = links.get(MEMBERS[code] ?? code) ?? [];
  const store = `/${basename(page, ".md")}/`;
  return found.length === 1 ? found[0] : found.find((link) => link.includes(store));
}

/** The names of the reference, `lock()` and `LockError`, and where their pages are. */
function linksOf(folder: string): ReadonlyMap<string, readonly string[]> {
  const links = new Map<string, string[]>();
  for (const { name, link } of membersOf(folder))
    links.set(name, [...(links.get(name) ?? []), link]);
  return links;
}

/** The sidebar of the reference: what programs import, and below each what it exports, functions first. */
export function referenceSidebar(documents: string): DefaultTheme.SidebarItem[] {
  const members = membersOf(join(documents, REFERENCE));
  const points = ENTRY_POINTS.map((point) => ({
    text: point,
    link: `/${REFERENCE}/${point}/`,
    collapsed: true,
    items: members
      .filter((member) => member.point === point)
      .sort((a, b) => Number(b.isCalled) - Number(a.isCalled) || a.name.localeCompare(b.name))
      .map(({ name, link }) => ({ text: name, link })),
  }));
  return [{ text: "All pages", link: "/" }, ...points.filter(({ items }) => items.length > 0)];
}

type Member = { name: string; point: string; link: string; isCalled: boolean };

/** What TypeDoc has made a page of, in folders by entry point and kind. */
function membersOf(folder: string): Member[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { recursive: true, encoding: "utf8" }).flatMap((file) => {
    const path = file.split(sep).join("/");
    const [, point, kind] = /^(.*)\/([^/]+)\/[^/]+\.md$/.exec(path) ?? [];
    if (point === undefined || path.endsWith("/index.md")) return [];
    const [, title = ""] = /^# (.*)$/m.exec(readFileSync(join(folder, file), "utf8")) ?? [];
    const name = title.replaceAll("\\", "");
    return [
      { name, point, link: `/${REFERENCE}/${path.slice(0, -3)}`, isCalled: kind === "functions" },
    ];
  });
}
