import type { RawRecord } from "../../native/outcome.js";
import { type Command, text } from "../command.js";
import { formatDuration } from "../duration.js";
import { Exit, usage } from "../exit.js";
import { age, type ShownLock, shownLock } from "../locks.js";
import { type Backend, direct, withBackend } from "../store.js";

const DEFAULT_LIMIT = 100;

/** The longest page that the stores are asked for. */
const PAGE = 100;

type Page = { locks: RawRecord[]; next: string | null };

export const list: Command = {
  name: "list",
  summary: "list the locks that are held",
  operands: [],
  description:
    "Lists live locks, in the order of the store. What comes or goes meanwhile may be missing. Redis is searched with SCAN, which\n" +
    "looks at every key of the database, a few hundred at a time; the user needs the right +scan. Firestore bills a read for each\n" +
    "lock, also for one that has expired and was not removed.",
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
      const { locks, next } = await collect(backend, limit, after);
      const shown = locks.map((lock) => shownLock(lock, showsLockId));
      out.result({ locks: shown, next }, () => table(shown, showsLockId, out));
      if (next !== null && !out.json) {
        out.note(`there may be more: --all, or --after ${next}`);
      }
      return Exit.OK;
    });
  },
};

function readLimit(given: string | undefined): number {
  if (given === undefined) return DEFAULT_LIMIT;
  const limit = /^\d{1,9}$/.test(given) ? Number(given) : 0;
  if (limit < 1) throw usage("--limit must be a whole number from 1 on");
  return limit;
}

/** Reads pages until there are enough locks. Redis may give one twice. */
async function collect(backend: Backend, limit: number, from: string | undefined): Promise<Page> {
  const found = new Map<string, RawRecord>();
  let after = from === undefined ? undefined : decode(from);
  while (found.size < limit) {
    const { locks, next } = await page(backend, after, Math.min(PAGE, limit - found.size));
    for (const lock of locks) found.set(lock.lockId, lock);
    if (next === null) return { locks: [...found.values()], next };
    after = next;
  }
  return { locks: [...found.values()], next: after === undefined ? null : encode(after) };
}

async function page(backend: Backend, after: string | undefined, limit: number): Promise<Page> {
  const { text: json } = await direct(backend)("", undefined, (store) => store.list(after, limit));
  return JSON.parse(json) as Page;
}

// A cursor may be a key, and those may be anything. Encoded, it can be put on a command line.
const encode = (cursor: string): string => Buffer.from(cursor).toString("base64url");
const decode = (cursor: string): string => Buffer.from(cursor, "base64url").toString();

function table(
  locks: readonly ShownLock[],
  showsLockId: boolean,
  out: { table(head: readonly string[], rows: readonly string[][]): string },
): string {
  const head = ["KEY", "FENCE", "ACQUIRED", "EXPIRES IN", "OWNER", "LOCK ID HASH"];
  if (showsLockId) head.push("LOCK ID");
  const rows = locks.map((lock) => [
    lock.key,
    lock.fence,
    age(lock),
    formatDuration(lock.expiresInMs),
    lock.owner ?? "-",
    lock.lockIdHash,
    ...(lock.lockId === undefined ? [] : [lock.lockId]),
  ]);
  return out.table(head, rows);
}
