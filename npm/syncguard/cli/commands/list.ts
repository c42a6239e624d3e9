import type { Command } from "../command.js";
import { text } from "../values.js";
import { Exit, usage } from "../exit.js";
import { collect } from "../../inspection/listing.js";
import { shownLock } from "../../inspection/locks.js";
import { tableOf } from "../locks.js";
import { withBackend } from "../store.js";

const DEFAULT_LIMIT = 100;

export const list: Command = {
  name: "list",
  summary: "list the locks that are held",
  operands: [],
  description:
    "Lists live locks, in the order of the store; slots of a key that are listed stand together. Who waits for readers to end, or\n" +
    "for several slots, may hold the gate of the key, which is no slot. What comes or goes meanwhile may be missing. Redis is\n" +
    "searched with SCAN, which looks at every key of the database, a few hundred at a time; the user needs the right +scan.\n" +
    "Firestore bills a read for each lock, also for one that has expired and was not removed.",
  options: {
    limit: {
      type: "string",
      value: "N",
      help: `stop after about so many locks; default ${DEFAULT_LIMIT}`,
    },
    after: {
      type: "string",
      value: "CURSOR",
      help: "continue where an earlier list has stopped: the cursor that it gave",
    },
    all: { type: "boolean", help: "list all, without a limit" },
    "show-lock-id": {
      type: "boolean",
      help: "show the lock ids, too: whoever knows one can release the lock",
    },
  },
  examples: [
    ["syncguard list", "who holds what"],
    ["syncguard list --json --all | jq '.locks[].key'", "for scripts"],
  ],
  exits: [],
  run: async ({ values, out }) => {
    const limit = values.all === true ? Infinity : readLimit(text(values, "limit"));
    const after = text(values, "after");
    const showsLockId = values["show-lock-id"] === true;
    return await withBackend(values, out, async (backend) => {
      const { locks, next } = await collect(backend, { limit, after });
      const shown = locks.map((lock) => shownLock(lock, showsLockId));
      out.result({ locks: shown, next }, () => tableOf(shown, showsLockId, out));
      if (next !== null && !out.json) {
        out.note(`there may be more: --all, or --after ${next}`);
      }
      return Exit.OK;
    });
  },
};

function readLimit(value: string | undefined): number {
  if (value === undefined) return DEFAULT_LIMIT;
  const limit = /^\d{1,9}$/.test(value) ? Number(value) : 0;
  if (limit < 1) throw usage("--limit must be a whole number from 1 on");
  return limit;
}
