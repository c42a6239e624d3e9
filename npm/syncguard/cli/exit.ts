/** Exit codes, and the errors that the command line reports. docs/cli.md, "Exit codes", says what they mean. */

import { constants } from "node:os";
import { CREATE_TABLES, isWithoutTables } from "../inspection/trouble.js";
import { LockError, type LockErrorCode } from "../native/errors.js";

/** As in `sysexits.h`, where that has a code that fits. */
export const Exit = {
  OK: 0,
  /** There is no such lock; or, of `doctor`, something is wrong. */
  NO: 1,
  USAGE: 64,
  /** Of `exec --once`: what is stored as done is later. */
  AHEAD: 65,
  UNAVAILABLE: 69,
  INTERNAL: 70,
  /** Somebody else holds the lock. */
  LOCKED: 75,
  /** The lock was lost while the command ran. */
  LOST: 76,
  PERMISSION: 77,
  /** As shells have it. */
  CANNOT_EXECUTE: 126,
  COMMAND_NOT_FOUND: 127,
} as const;

/** How an error of the library ends the program. */
const OF_CODE: Readonly<Record<LockErrorCode, number>> = {
  ServiceUnavailable: Exit.UNAVAILABLE,
  NetworkTimeout: Exit.UNAVAILABLE,
  RateLimited: Exit.UNAVAILABLE,
  AuthFailed: Exit.PERMISSION,
  InvalidArgument: Exit.USAGE,
  AcquisitionTimeout: Exit.LOCKED,
  LockLost: Exit.LOST,
  Aborted: Exit.INTERNAL,
  Internal: Exit.INTERNAL,
};

const HINTS: Readonly<Partial<Record<LockErrorCode, string>>> = {
  ServiceUnavailable: "is the store up, and is the URL right? `syncguard doctor` looks closer",
  NetworkTimeout: "`syncguard doctor` measures round trips; --timeout allows more time",
  RateLimited: "the store is overloaded: try again later",
  AuthFailed: "check user, password and rights; `syncguard doctor` tries what locks need",
};

/** An error with its own exit code, and what to do about it. */
export class CliError extends Error {
  constructor(
    readonly code: string,
    readonly exitCode: number,
    message: string,
    readonly hint?: string,
  ) {
    super(message);
  }
}

/** Wrong arguments. */
export function usage(message: string, hint?: string): CliError {
  return new CliError("Usage", Exit.USAGE, message, hint);
}

/** What to report of anything that was thrown. */
export function toCliError(error: unknown): CliError {
  if (error instanceof CliError) return error;
  if (error instanceof LockError) {
    const { code, message } = error;
    const hint = isWithoutTables(message) ? CREATE_TABLES : HINTS[code];
    return new CliError(code, OF_CODE[code], message, hint);
  }
  const message = error instanceof Error ? error.message : String(error);
  return new CliError("Internal", Exit.INTERNAL, message, "--verbose shows where it happened");
}

/** How shells report a program that a signal has ended. */
export function exitCodeOfSignal(signal: NodeJS.Signals): number {
  return 128 + constants.signals[signal];
}
