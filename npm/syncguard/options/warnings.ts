/** Warns of options that do not exist where an error could break callers that have passed more for long. */

import { nearest, shown } from "./known.js";

/** The options of one function. */
export type OptionNames = {
  /** What the function is called in the warning. */
  readonly of: string;
  /** Names that need no warning: those that exist, and those that have been warned of. */
  readonly quiet: Set<string>;
  /** Where each option stands, by its name. */
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
export const WAITING = ["maxRetries", "retryDelayMs", "backoff", "jitter", "timeoutMs"] as const;

/** Whoever makes up names at each call gets no more warnings than this, and keeps no more memory. */
const MOST_NAMES = 200;

/** Warns once of each member of `given` that is no option, unless NODE_ENV is `production`. */
export function warnOfUnknown(given: object, names: OptionNames): void {
  // Every call of `lock()` comes through here: nothing is made, and the environment is read for unknown names alone.
  for (const name in given) {
    if (!names.quiet.has(name)) warn(name, given, names);
  }
}

function warn(name: string, given: object, { of, quiet, places }: OptionNames): void {
  if ((given as Record<string, unknown>)[name] === undefined || quiet.size >= MOST_NAMES) return;
  quiet.add(name);
  if (process.env.NODE_ENV === "production") return;
  const names = [...places.keys()];
  // Units are what is left out most: `ttl` is far from `ttlMs` for its length.
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
