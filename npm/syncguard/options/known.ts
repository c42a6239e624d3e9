/** Finds misspelt options. JavaScript accepts any property, so without this a typo would mean the default. */

import { invalid } from "./validation.js";

/**
 * Refuses members of `options` that are not in `known`, and names the one that was probably meant. Members that are
 * `undefined` count as absent.
 *
 * @param what - what a member is called in the message, such as "Redis backend option"
 * @param foreign - names that others give to known options, with ours
 * @throws LockError `InvalidArgument`
 */
export function checkKnownOptions(
  options: object,
  known: readonly string[],
  what: string,
  foreign: Readonly<Record<string, string>> = {},
): void {
  for (const [name, value] of Object.entries(options) as [string, unknown][]) {
    if (value === undefined || known.includes(name)) continue;
    const own = Object.fromEntries(known.map((option) => [option, option]));
    const near = meant(name, { ...foreign, ...own });
    const hint = near === undefined ? NEEDLESS[name] : `did you mean ${near}?`;
    throw invalid(`${shown(name)} is not a ${what}${hint === undefined ? "" : `: ${hint}`}`);
  }
}

/** What clients have an option for, and nobody needs here. */
const NEEDLESS: Readonly<Record<string, string>> = {
  family: "leave it out, addresses of IPv4 and IPv6 are both tried",
};

/**
 * Names among the connection options that stand for options of the backend: these names themselves, and those that clients
 * have for them.
 */
export function backendsOwn(
  options: readonly string[],
  foreign: Readonly<Record<string, string>>,
): Record<string, string> {
  const own = Object.fromEntries(options.map((option) => [option, option]));
  const all = Object.entries({ ...foreign, ...own });
  return Object.fromEntries(
    all.map(([name, option]) => [name, `${option} of the backend's options`]),
  );
}

/** What was probably meant by `name`; `places` says what each name that is known stands for. */
export function meant(name: string, places: Readonly<Record<string, string>>): string | undefined {
  const names = Object.keys(places);
  // Most often the unit was left out, and for a short name `ttl` is too far from `ttlMs` to be a typo of it.
  const near = nearest(name, names) ?? names.find((known) => known === `${name}Ms`);
  return near === undefined ? undefined : places[near];
}

/** The name in `known` that `name` was probably meant to be. */
export function nearest(name: string, known: readonly string[]): string | undefined {
  // A typo gets most letters right.
  const most = (candidate: string) => Math.max(1, Math.floor(candidate.length / 3));
  return known
    .map((candidate) => ({ candidate, edits: distance(plain(name), plain(candidate)) }))
    .filter(({ candidate, edits }) => edits <= most(candidate))
    .sort((a, b) => a.edits - b.edits)[0]?.candidate;
}

/** The name without what differs between naming styles, so that `table_name` equals `tableName`. */
function plain(name: string): string {
  return name.slice(0, 64).toLowerCase().replace(/[_-]/g, "");
}

/** The name if it is short. Anything longer may be a value in the wrong place, and is not shown. */
export function shown(name: string, otherwise = "a name that is given"): string {
  return /^[\w.-]{1,64}$/.test(name) ? name : otherwise;
}

/** The edit distance: how many letters have to be inserted, removed, replaced or swapped with their neighbour. */
function distance(word: string, other: string): number {
  const rows = [Array.from({ length: other.length + 1 }, (_, column) => column)];
  for (let row = 1; row <= word.length; row += 1) {
    const above = rows[row - 1] as number[];
    const current = [row];
    for (let column = 1; column <= other.length; column += 1) {
      const same = word[row - 1] === other[column - 1];
      const swapped = word[row - 1] === other[column - 2] && word[row - 2] === other[column - 1];
      current[column] = Math.min(
        (above[column] as number) + 1,
        (current[column - 1] as number) + 1,
        (above[column - 1] as number) + (same ? 0 : 1),
        swapped ? ((rows[row - 2] as number[])[column - 2] as number) + 1 : Infinity,
      );
    }
    rows.push(current);
  }
  return (rows[word.length] as number[])[other.length] as number;
}
