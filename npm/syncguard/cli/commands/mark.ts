import { readDue, storedDue } from "../../values/due.js";
import { checkKey } from "../../values/arguments.js";
import { LockError } from "../../native/errors.js";
import type { Command } from "../command.js";
import { text, type Values } from "../values.js";
import { Exit, usage } from "../exit.js";
import { isOtherKind, type Mark, readMark } from "../../inspection/marks.js";
import { shownMark } from "../marks.js";
import { withBackend } from "../store.js";

export const mark: Command = {
  name: "mark",
  summary: "show or change what once() has stored as done",
  operands: ["<key>"],
  description:
    "Shows for which period of a key something was done last, by once() or by exec --once. With --set, that period counts as done,\n" +
    "whatever was before: nobody does it, or an earlier one, any more. With --clear, any period is to be done. Who is doing it at\n" +
    "this moment is not disturbed, and stores it in the end if it is a later one.",
  options: {
    set: { type: "string", value: "DUE", help: "store this period as done; needs --yes" },
    force: {
      type: "boolean",
      help: "with --set: also text in place of a number, or a number in place of text",
    },
    clear: { type: "boolean", help: "store that no period is done; needs --yes" },
    yes: { type: "boolean", short: "y", help: "I know what I do; needed for a change" },
  },
  examples: [
    ["syncguard mark nightly-report", "the last night that is done, and when it was"],
    ["syncguard mark migration --set 41 --yes", "version 42 is to be done again"],
    ["syncguard mark nightly-report --clear --yes", "as if nothing had ever been done"],
  ],
  exits: [["1", "nothing is stored as done, and nothing was to be changed"]],
  run: async ({ values, operands, out }) => {
    const due = changeOf(values);
    const key = operands[0] as string;
    return await withBackend(values, out, async (backend) => {
      checkKey(key);
      if (due && values.force !== true) checkKind(await readMark(backend, key), due);
      const before = await readMark(backend, key, due);
      if (due !== undefined) {
        out.detail(before === null ? "nothing was stored as done" : `before: ${shownMark(before)}`);
      }
      const after = due === undefined ? before : await readMark(backend, key);
      out.result({ done: after }, () => (after === null ? "nothing is done" : shownMark(after)));
      return due === undefined && before === null ? Exit.NO : Exit.OK;
    });
  },
};

/** What is to be stored: a period, "" for none, or `undefined` to change nothing. */
function changeOf(values: Values): string | undefined {
  const set = text(values, "set");
  const isClear = values.clear === true;
  if (set !== undefined && isClear) throw usage("--set and --clear exclude each other");
  if (set === undefined && !isClear) return undefined;
  if (values.yes !== true) {
    throw usage("mark changes what is done for all processes: nothing was done without --yes");
  }
  return set === undefined ? "" : readPeriod(set, "set");
}

/** Refuses what would make once() fail wherever it is called. */
function checkKind(before: Mark | null, due: string): void {
  if (!isOtherKind(before, due)) return;
  const isNumber = storedDue(due).startsWith("n");
  const [is, becomes] = isNumber ? ["text", "a number"] : ["a number", "text"];
  throw usage(
    `what is stored as done for this key is ${is}, and --set is ${becomes}: once() would fail wherever it is given ${is}`,
    "--force stores it nevertheless",
  );
}

/** A period, as an option gives it. */
export function readPeriod(period: string, option: string): string {
  try {
    return readDue(period);
  } catch (error) {
    if (!(error instanceof LockError)) throw error;
    throw usage(`--${option}: ${error.message}`);
  }
}
