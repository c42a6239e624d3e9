/** Finds misspelt options. JavaScript accepts any property, so without this a typo would mean the default. */

import { invalid } from "./validation.js";

/**
 * Refuses members of `given` that are not in `known`, and names the nearest known one. Members that are `undefined` count
 * as absent.
 *
 * @param what - what a member is called in the message, such as "Redis backend option"
 * @throws LockError `InvalidArgument`
 */
export function checkKnownOptions(given: object, known: readonly string[], what: string): void {
  for (const [name, value] of Object.entries(given) as [string, unknown][]) {
    if (value === undefined || known.includes(name)) continue;
    const near = nearest(name, known);
    throw invalid(
      `${shown(name)} is not a ${what}${near === undefined ? "" : `: did you mean ${near}?`}`,
    );
  }
}

/** The name in `known` that `name` was probably meant to be. */
export function nearest(name: string, known: readonly string[]): string | undefined {
  // A typo gets most letters right.
  const most = (candidate: string) => Math.max(1, Math.floor(candidate.length / 3));
  return known
    .map((candidate) => ({ candidate, edits: distance(plain(name), plain(candidate)) }))
    .filter(({ candidate, edits }) => edits <= most(candidate))
    .sort((one, other) => one.edits - other.edits)[0]?.candidate;
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
function distance(one: string, other: string): number {
  const rows = [Array.from({ length: other.length + 1 }, (_, column) => column)];
  for (let row = 1; row <= one.length; row += 1) {
    const above = rows[row - 1] as number[];
    const current = [row];
    for (let column = 1; column <= other.length; column += 1) {
      const same = one[row - 1] === other[column - 1];
      const swapped = one[row - 1] === other[column - 2] && one[row - 2] === other[column - 1];
      current[column] = Math.min(
        (above[column] as number) + 1,
        (current[column - 1] as number) + 1,
        (above[column - 1] as number) + (same ? 0 : 1),
        swapped ? ((rows[row - 2] as number[])[column - 2] as number) + 1 : Infinity,
      );
    }
    rows.push(current);
  }
  return (rows[one.length] as number[])[other.length] as number;
}
