/**
 * Checks of arguments and options, for code that runs before the core sees them.
 *
 * This room knows how options are read and refused, and how settings are read from users' clients, whatever the store.
 * It must not know locks, or which options a store has.
 */

import { invalid, type LockError } from "../native/errors.js";

export { invalid };

/** The longest wait that setTimeout supports: it does not wait at all for longer ones. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** Refuses anything but a function. */
export function checkFunction(value: unknown, name: string): void {
  if (typeof value !== "function") throw invalid(`${name} must be a function`);
}

/** Refuses what should be a client, a URL or options: most often it is a variable of the environment that is not set. */
export function notAClient(rule: string, value: unknown): LockError {
  const nothing = value === undefined ? "undefined" : value === "" && "empty";
  return invalid(nothing ? `${rule}; it is ${nothing}: is its variable set?` : rule);
}

/** Refuses anything but an object. Arrays and functions do not count as objects. */
export function checkObject(value: unknown, name: string): asserts value is object {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw invalid(`${name} must be an object`);
  }
}

/** The options without members that are `null`, which count as not given. `null` itself counts as no options. */
export function withoutNulls<Options extends object>(options: Options): Options {
  if ((options as unknown) === null) return {} as Options;
  checkObject(options, "options");
  const entries = Object.entries(options).filter(([, value]) => value !== null);
  return Object.fromEntries(entries) as Options;
}

/** Copies the options of these names that are given. The compiler knows each: a spread would take unknown names along. */
export function copyGiven<To extends object>(
  to: To,
  from: { readonly [Name in keyof NoInfer<To>]?: To[Name] | undefined },
  ...names: readonly (keyof NoInfer<To>)[]
): To {
  for (const name of names) {
    const value = from[name];
    if (value !== undefined) to[name] = value;
  }
  return to;
}

/**
 * Checks the options that backends on servers have in common.
 *
 * @throws LockError `InvalidArgument` that names the option
 */
export function checkServerOptions(options: unknown): void {
  checkObject(options, "options");
  const { cleanupInIsLocked, operationTimeoutMs, connectTimeoutMs, transport } = options as Record<
    string,
    unknown
  >;
  checkBooleans({ cleanupInIsLocked });
  for (const [name, ms] of Object.entries({ operationTimeoutMs, connectTimeoutMs })) {
    if (ms !== undefined && !isTimeout(ms)) {
      throw invalid(`${name} must be from 1 to ${LONGEST_TIMER_MS} milliseconds`);
    }
  }
  if (transport !== undefined && transport !== "native" && transport !== "client") {
    throw invalid('transport must be "native" or "client"');
  }
}

/** Refuses options that are given and are not booleans. `options` has them by name. */
export function checkBooleans(options: Readonly<Record<string, unknown>>): void {
  checkTypes(options, "boolean");
}

/** The same for strings. */
export function checkStrings(options: Readonly<Record<string, unknown>>): void {
  checkTypes(options, "string");
}

/** The same for numbers; the core checks their range. */
export function checkNumbers(options: Readonly<Record<string, unknown>>): void {
  checkTypes(options, "number");
}

function checkTypes(
  options: Readonly<Record<string, unknown>>,
  type: "boolean" | "string" | "number",
): void {
  for (const [name, value] of Object.entries(options)) {
    if (value !== undefined && typeof value !== type) throw invalid(`${name} must be a ${type}`);
  }
}

function isTimeout(ms: unknown): boolean {
  return typeof ms === "number" && ms >= 1 && ms <= LONGEST_TIMER_MS;
}
