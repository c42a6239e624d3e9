/** Reads `due`: the period, or the version, for which something is to be done once. The core has the same rules. */

import { types } from "node:util";
import { constants } from "../native/constants.js";
import { invalid } from "../options/validation.js";
import { periodOf } from "./period.js";

const { maxDueLength, maxDueDigits } = constants;

/** The mark because of which a period is refused. */
export type Done = {
  readonly due: string;
  readonly doneAtMs: number;
  /** Whether it is of a later period than the one that was asked for. */
  readonly isLater: boolean;
};

/** The printable characters of ASCII. */
const PRINTABLE = /^[ -~]+$/;
const DIGITS = /^\d+$/;

/**
 * Turns `due` into a text. A Date becomes its milliseconds, and a time with an offset is written in UTC.
 *
 * @throws LockError `InvalidArgument`
 */
export function readDue(due: unknown): string {
  // `instanceof` does not know a Date of another realm, such as that of Jest's tests.
  if (types.isDate(due)) return numbered(due.getTime());
  if (typeof due === "number") return numbered(due);
  if (typeof due !== "string") throw invalid("due must be a Date, a number or a string");
  if (due === "") throw invalid("due must not be empty");
  if (!PRINTABLE.test(due)) throw invalid("due must contain only printable characters of ASCII");
  if (DIGITS.test(due)) {
    if (withoutZeros(due).length > maxDueDigits) {
      throw invalid(`due must not have more than ${maxDueDigits} digits`);
    }
  } else if (due.length > maxDueLength) {
    throw invalid(`due must not have more than ${maxDueLength} characters`);
  }
  const period = periodOf(due);
  if (period?.isLocal === true) warnOfLocal();
  return period?.name ?? due;
}

let hasWarned = false;

/** Warns once that an hour of local time comes twice in autumn. */
function warnOfLocal(): void {
  if (hasWarned) return;
  hasWarned = true;
  process.emitWarning(
    "due is a time of day without an offset: if it is local time, the hour that comes twice when clocks go back counts as done the second time",
    {
      type: "SyncGuardWarning",
      code: "SYNCGUARD_LOCAL_PERIOD",
      detail: 'Write it in UTC with a Z, or with an offset: "2026-10-25T02:00+02:00".',
    },
  );
}

function numbered(number: number): string {
  if (!Number.isSafeInteger(number) || number < 0) {
    throw invalid("due must be a valid Date, or a whole number that is not negative");
  }
  return String(number);
}

function withoutZeros(digits: string): string {
  return digits.replace(/^0+(?=\d)/, "");
}

/** The form in which stores keep a period. Numbers get leading zeros, so that within a kind the texts sort as the periods do. */
export function storedDue(due: string): string {
  return DIGITS.test(due) ? `n${withoutZeros(due).padStart(maxDueDigits, "0")}` : `t${due}`;
}

/** The form in which people see a period. */
export function shownDue(stored: string): string {
  const text = stored.slice(1);
  return stored.startsWith("n") ? withoutZeros(text) : text;
}

/** Whether both are numbers, or both are texts. */
export function isOfKind(a: string, b: string): boolean {
  return a[0] === b[0];
}

/** Whether the period `due` is still to be done after `last`. Both are as stores keep them. */
export function isAfter(due: string, last: string): boolean {
  return isOfKind(due, last) && due > last;
}
