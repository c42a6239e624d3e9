/** Reads what somebody else's code has thrown, which may be anything, of any realm. */

import { types } from "node:util";

/** Whether a value is an error. `instanceof` does not know errors of another realm, and Jest's tests have a realm of their own. */
export function isError(value: unknown): value is Error {
  return value instanceof Error || types.isNativeError(value);
}

/** The message of what was thrown. This never throws, although some values cannot become a text and some `message` cannot be read. */
export function messageOf(thrown: unknown): string {
  if ((typeof thrown !== "object" || thrown === null) && typeof thrown !== "function") {
    return String(thrown);
  }
  const message = memberOf(thrown, "message");
  if (typeof message === "string" && message !== "") return message;
  if (isError(thrown)) return thrown.name;
  return `a${typeof thrown === "object" ? "n" : ""} ${typeof thrown} was thrown that is no error`;
}

/** A member of what was thrown, or `undefined` if there is none or its getter throws. */
export function memberOf(thrown: unknown, name: string): unknown {
  try {
    return (thrown as Record<string, unknown> | null | undefined)?.[name];
  } catch {
    return undefined;
  }
}
