/**
 * The native addon, with the types that the build writes into `exports.ts`.
 *
 * This room knows how calls cross to the addon and come back: numbers, texts, errors, signals.
 * It must not know what a lock is to its users: it converts, and decides nothing.
 */

import { constants } from "./constants.js";
import { LockError, type LockErrorCode } from "./errors.js";
import type * as exported from "./exports.js";
import { loadAddon } from "./loader.js";

let loaded: typeof exported | undefined;

/**
 * The addon. It is loaded at its first use, so that types, errors and rules can be imported on a platform without a binary. Entry
 * points of stores load it when they are imported, so that a missing binary is noticed at the start and not at night.
 */
export function addon(): typeof exported {
  return (loaded ??= loadAddon() as typeof exported);
}

/** The core's error codes. The type checks that they are the documented ones. */
const CODES: ReadonlySet<string> = new Set<LockErrorCode>(constants.errorCodes);

/** Calls the addon and turns its errors into LockErrors. */
export function callAddon<T>(run: () => T): T {
  try {
    return run();
  } catch (error) {
    if (error instanceof LockError) throw error; // the addon could not be loaded
    const { code, message } = error as { code?: string; message: string };
    // Node-API itself has other codes, such as StringExpected, for arguments of a wrong type.
    const known = code !== undefined && CODES.has(code);
    throw new LockError(known ? (code as LockErrorCode) : "InvalidArgument", message);
  }
}
