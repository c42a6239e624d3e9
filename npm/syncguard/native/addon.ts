/** The native addon, with the types that the build writes into `exports.ts`. */

import { constants } from "./constants.js";
import { LockError, type LockErrorCode } from "./errors.js";
import type * as exported from "./exports.js";
import { loadAddon } from "./loader.js";

export const addon = loadAddon() as typeof exported;

/** The core's error codes. The type checks that they are the documented ones. */
const CODES: ReadonlySet<string> = new Set<LockErrorCode>(constants.errorCodes);

/** Calls the addon and turns its errors into LockErrors. */
export function callAddon<T>(run: () => T): T {
  try {
    return run();
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    // Other codes are those of Node-API itself, such as StringExpected, for arguments of a wrong type.
    const known = code !== undefined && CODES.has(code);
    throw new LockError(known ? (code as LockErrorCode) : "InvalidArgument", message);
  }
}
