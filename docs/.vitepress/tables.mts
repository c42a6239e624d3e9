/** Tables on a telephone, where theme/style.css makes a card of each row. */

import type { MarkdownRenderer } from "vitepress";

type Token = ReturnType<MarkdownRenderer["parse"]>[number];

/** Tells each cell the name of its column. Tables of figures stay tables, because figures are compared by column. */
export function nameColumns(md: MarkdownRenderer): void {
  md.core.ruler.push("columns", ({ tokens }) => {
    let names: string[] = [];
    let column = 0;
    for (const [index, token] of tokens.entries()) {
      if (token.type === "table_open") names = columnsOf(tokens.slice(index));
      if (token.type === "tr_open") column = 0;
      if (token.type !== "td_open") continue;
      const name = names[column++];
      if (name !== undefined) token.attrSet("data-column", name);
    }
  });
}

/** The names of the columns of the first table; none if several are of figures. */
function columnsOf(tokens: readonly Token[]): string[] {
  const head = tokens.slice(
    0,
    tokens.findIndex(({ type }) => type === "thead_close"),
  );
  const isFigures = (token: Token): boolean =>
    token.type === "th_open" && token.attrGet("style") === "text-align:right";
  if (head.filter(isFigures).length > 1) return [];
  return head
    .filter((_, index) => head[index - 1]?.type === "th_open")
    .map(({ children }) => (children ?? []).map(({ content }) => content).join(""));
}
