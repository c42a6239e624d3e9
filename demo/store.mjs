// The store that the payments go to: one file per account, and a journal of all writes.
//
// It has no locking of its own. Two processes that read an account, think, and write it back would
// overwrite each other's payments; what makes it right is the lock around it, and for a holder that
// has lost its lock without knowing it, the fence that each write carries.

import { appendFileSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const EMPTY = { fence: "", balanceCents: 0, payments: [] };

/** A write that came too late: a later holder of the lock has written since. */
export class StaleFence extends Error {
  constructor(fence, seen) {
    super(`fence ${fence} is smaller than ${seen}`);
    this.name = "StaleFence";
    this.fence = fence;
    this.seen = seen;
  }
}

/** The store in `folder`. */
export function openStore(folder) {
  const accounts = join(folder, "accounts");
  const journal = join(folder, "journal.jsonl");
  mkdirSync(accounts, { recursive: true });
  const fileOf = (account) => join(accounts, `${account}.json`);

  function read(account) {
    try {
      return JSON.parse(readFileSync(fileOf(account), "utf8"));
    } catch (error) {
      if (error.code === "ENOENT") return structuredClone(EMPTY);
      throw error;
    }
  }

  /** Books `payment` on the account as it was read: `state` is what `read` gave. */
  function write(account, state, payment, fence, worker) {
    // A database would compare in the same statement: UPDATE … WHERE fence <= $1.
    const { fence: seen } = read(account);
    if (fence < seen) throw new StaleFence(fence, seen);
    const next = {
      fence,
      balanceCents: state.balanceCents + payment.cents,
      payments: [...state.payments, payment.id],
    };
    const temporary = `${fileOf(account)}.${process.pid}`;
    writeFileSync(temporary, JSON.stringify(next));
    renameSync(temporary, fileOf(account));
    appendFileSync(journal, `${JSON.stringify({ id: payment.id, account, fence, worker })}\n`);
  }

  function readJournal() {
    try {
      const lines = readFileSync(journal, "utf8").split("\n").filter(Boolean);
      return lines.map((line) => JSON.parse(line));
    } catch (error) {
      if (error.code === "ENOENT") return [];
      throw error;
    }
  }

  return { read, write, readJournal };
}
