/** Options of commands, and their values. */

import { usage } from "./exit.js";

/** One option, with or without a value. */
export type Option = {
  readonly type: "string" | "boolean";
  readonly short?: string;
  /** What the value is called in the help. */
  readonly value?: string;
  readonly help: string;
};

export type Options = Readonly<Record<string, Option>>;

/** The options that were given, by name. */
export type Values = Readonly<Record<string, string | boolean | undefined>>;

/** The value of an option that has one. */
export function text(values: Values, name: string): string | undefined {
  const value = values[name];
  return typeof value === "string" ? value : undefined;
}

/** The whole number that an option has, from `min` to `max`. */
export function readCount(values: Values, name: string, max: number, min = 1): number | undefined {
  const value = text(values, name);
  if (value === undefined) return undefined;
  const count = /^\d{1,9}$/.test(value) ? Number(value) : -1;
  if (count >= min && count <= max) return count;
  throw usage(`--${name} must be a whole number from ${min} to ${max}`);
}
