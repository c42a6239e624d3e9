/** The options of functions, and what becomes of members that are none. */

import { meant, shown } from "./known.js";
import { invalid } from "./validation.js";

/** The options of one function. */
export type OptionNames = {
  /** The function's name in messages. */
  readonly of: string;
  /** Names about which nothing is said: the options, and names that were warned about already. */
  readonly quiet: Set<string>;
  /** The path of each option, by its name. */
  readonly places: Readonly<Record<string, string>>;
};

/** @param nested - options that are not the function's own but those of its option `acquisition` */
export function optionNames(
  of: string,
  names: readonly string[],
  nested: readonly string[] = [],
): OptionNames {
  const places: Record<string, string> = {};
  for (const name of nested) places[name] = `acquisition.${name}`;
  for (const name of names) places[name] = name;
  return { of, quiet: new Set(names), places };
}

/** The names of a type's members: TypeScript refuses a list that lacks one of them, or has another. */
export function namesOf<Options>(names: Readonly<Record<keyof Options, true>>): string[] {
  return Object.keys(names);
}

/** The options that say how to wait. */
export const WAITING = [
  "maxRetries",
  "retryDelayMs",
  "maxRetryDelayMs",
  "backoff",
  "jitter",
  "timeoutMs",
  "wait",
] as const;

/**
 * Refuses members of `options` that are no options.
 *
 * @throws LockError `InvalidArgument` that names the option that was probably meant
 */
export function refuseUnknown(options: object, names: OptionNames): void {
  // Every call of `backend.lock()` comes through here, so this allocates nothing for known names.
  for (const name in options) {
    if (names.quiet.has(name) || (options as Record<string, unknown>)[name] === undefined) continue;
    throw invalid(complaint(name, names, ""));
  }
}

/** Limits the warnings, and the memory for them, if a caller uses new names in each call. */
const MOST_NAMES = 200;

/**
 * Warns once about each member of `options` that is no option: for functions that SyncGuard 2 had, which ignored them. In
 * production, too, because a lock with another TTL than its author believes is found nowhere else.
 */
export function warnOfUnknown(options: object, names: OptionNames): void {
  // Every call of `lock()` comes through here, so this allocates nothing for known names.
  for (const name in options) {
    if (!names.quiet.has(name)) warn(name, options, names);
  }
}

function warn(name: string, options: object, names: OptionNames): void {
  const { quiet } = names;
  if ((options as Record<string, unknown>)[name] === undefined || quiet.size >= MOST_NAMES) return;
  quiet.add(name);
  process.emitWarning(complaint(name, names, ", which is ignored"), {
    type: "SyncGuardWarning",
    code: "SYNCGUARD_UNKNOWN_OPTION",
  });
}

function complaint(name: string, { of, places }: OptionNames, end: string): string {
  const near = meant(name, places);
  const hint = near === undefined ? "" : `: did you mean ${near}?`;
  return `${of} has no option ${shown(name, "of a name that is given")}${end}${hint}`;
}
