/** What is wrong with a store, in the words of `syncguard doctor`. */

import { LockError } from "../native/errors.js";

const FIXES: Readonly<Record<string, string>> = {
  ServiceUnavailable: "start the store, or correct the URL",
  NetworkTimeout: "look for a firewall or a wrong address; --timeout allows more time",
  AuthFailed: "correct user and password, or give the rights that the store's guide names",
  RateLimited: "try again when the store is less busy",
};

/** An operation that has failed: why, and what to do about it. */
export type Trouble = { readonly code: string; readonly message: string; readonly fix: string };

export function troubleOf(error: unknown): Trouble {
  const code = error instanceof LockError ? error.code : "Internal";
  const message = error instanceof Error ? error.message : String(error);
  return { code, message, fix: fixOf(code, message) };
}

function fixOf(code: string, message: string): string {
  if (/READONLY|is read-only/.test(message)) return "connect to the primary";
  if (isWithoutTables(message)) return CREATE_TABLES;
  return FIXES[code] ?? "see the message";
}

/** What creates the tables that are missing. */
export const CREATE_TABLES = "`syncguard setup` creates the tables";

export function isWithoutTables(message: string): boolean {
  return message.includes("setupSchema");
}
