/** Warns about unknown options where an error could break callers who have been passing them for a long time. */

import { nearest, shown } from "./known.js";

/** The options of one function. */
export type OptionNames = {
  /** The function's name in the warning. */
  readonly of: string;
  /** Names that need no warning: known options, and names that were warned about already. */
  readonly quiet: Set<string>;
  /** The path of each option, by its name. */
  readonly places: ReadonlyMap<string, string>;
};

/** @param nested - options that are not the function's own but those of its option `acquisition` */
export function optionNames(
  of: string,
  names: readonly string[],
  nested: readonly string[] = [],
): OptionNames {
  const places = new Map(nested.map((name) => [name, `acquisition.${name}`]));
  for (const name of names) places.set(name, name);
  return { of, quiet: new Set(names), places };
}

/** The options that say how to wait. */
export const WAITING = [
  "maxRetries",
  "retryDelayMs",
  "backoff",
  "jitter",
  "timeoutMs",
  "wait",
] as const;

/** Limits the warnings, and the memory for them, if a caller uses new names in each call. */
const MOST_NAMES = 200;

/** Warns once about each member of `given` that is not an option, unless NODE_ENV is `production`. */
export function warnOfUnknown(given: object, names: OptionNames): void {
  // Every call of `lock()` comes through here, so this allocates nothing and reads the environment only for unknown names.
  for (const name in given) {
    if (!names.quiet.has(name)) warn(name, given, names);
  }
}

function warn(name: string, given: object, { of, quiet, places }: OptionNames): void {
  if ((given as Record<string, unknown>)[name] === undefined || quiet.size >= MOST_NAMES) return;
  quiet.add(name);
  if (process.env.NODE_ENV === "production") return;
  const names = [...places.keys()];
  // Most often the unit was left out, and for a short name `ttl` is too far from `ttlMs` to be a typo of it.
  const near = nearest(name, names) ?? names.find((known) => known === `${name}Ms`);
  const hint = near === undefined ? "" : `: did you mean ${places.get(near)}?`;
  process.emitWarning(
    `${of} has no option ${shown(name, "of a name that is given")}, which is ignored${hint}`,
    {
      type: "SyncGuardWarning",
      code: "SYNCGUARD_UNKNOWN_OPTION",
    },
  );
}
