/** What somebody else's code has thrown: anything, of any realm. */

import { types } from "node:util";

/** Whether that is an error. Those of another realm are none by `instanceof`: Jest's tests have a realm of their own. */
export function isError(value: unknown): value is Error {
  return value instanceof Error || types.isNativeError(value);
}

/** What it says, in words. This never throws: not every value can be made a text, and not every `message` can be read. */
export function messageOf(thrown: unknown): string {
  if ((typeof thrown !== "object" || thrown === null) && typeof thrown !== "function") {
    return String(thrown);
  }
  const message = memberOf(thrown, "message");
  if (typeof message === "string" && message !== "") return message;
  if (isError(thrown)) return thrown.name;
  return `a${typeof thrown === "object" ? "n" : ""} ${typeof thrown} was thrown that is no error`;
}

/** A member of what was thrown; `undefined` also of one whose getter throws. */
export function memberOf(thrown: unknown, name: string): unknown {
  try {
    return (thrown as Record<string, unknown> | null | undefined)?.[name];
  } catch {
    return undefined;
  }
}
