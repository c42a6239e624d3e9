import { LockError } from "./errors.js";

/** What is checked as a lock id. For any other value, the name of its type stands in: it is none, and an error may show it. */
export function lockIdText(lockId: unknown): string {
  if (typeof lockId === "string") return lockId;
  return lockId ? typeof lockId : "";
}

/**
 * Refuses what is not well-formed text. Lone surrogates would all become U+FFFD on the way to a store, so that two keys
 * would be one.
 */
export function checkText(text: unknown, name: string): asserts text is string {
  if (typeof text !== "string") {
    throw new LockError("InvalidArgument", `${name} must be a string`);
  }
  if (!text.isWellFormed()) {
    throw new LockError("InvalidArgument", `${name} must be well-formed Unicode`);
  }
}
