/** What is stored as done, as the command line shows it. */

import { time } from "./locks.js";
import { type Backend, direct } from "./store.js";

/** For which period something was done last, and when. */
export type Mark = { readonly due: string; readonly doneAtMs: number };

/** What is stored of a key. Then `due` is stored in its place; with "", nothing. */
export async function readMark(backend: Backend, key: string, due?: string): Promise<Mark | null> {
  const run = direct(backend);
  const { text } = await run(key, undefined, (store) => store.mark(key, due));
  return JSON.parse(text) as Mark | null;
}

/** The same for people. */
export function shownMark({ due, doneAtMs }: Mark): string {
  return `${due}, at ${time(doneAtMs)}`;
}
