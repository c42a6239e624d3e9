import { validateLockId } from "../../values/values.js";
import type { FencingCapabilities, LockInfo } from "../../values/types.js";
import { LockError } from "../../native/errors.js";
import type { RawRecord } from "../../native/outcome.js";
import type { Command } from "../command.js";
import { Exit } from "../exit.js";
import { slotsInUse } from "../../inspection/listing.js";
import { ofLookup, shownLock } from "../../inspection/locks.js";
import { readMark } from "../../inspection/marks.js";
import { age, expiry, keyOf, tableOf, time } from "../locks.js";
import { shownMark } from "../marks.js";
import { type Output, printable } from "../output.js";
import { type Backend, withBackend } from "../store.js";

export const status: Command = {
  name: "status",
  summary: "show who holds a lock",
  operands: ["<key|lockId>"],
  description:
    "Shows the lock on a key. If nobody holds that key and the argument has the form of a lock id, the lock with that id is shown;\n" +
    "else the slots of the key that are in use, for which all locks are looked through, as list does. Of a key for which something\n" +
    "was done once, the last period that is done is shown, too.\n" +
    "The answer may be out of date when it arrives: do not decide by it whether to do what the lock protects. Use exec for that.",
  options: {
    "show-lock-id": {
      type: "boolean",
      help: "show the lock id, too: whoever knows it can release the lock",
    },
  },
  examples: [
    ["syncguard status job:nightly-report", "who holds it, under which fence, until when"],
    ["syncguard status api:partner", "of a key with slots: which are in use, and by whom"],
    ["syncguard status job:nightly-report --json | jq .expiresInMs", "for scripts"],
    ["if syncguard status deploy >/dev/null; then echo busy; fi", "by exit code"],
  ],
  exits: [["1", "nobody holds it"]],
  run: async ({ values, operands, out }) =>
    await withBackend(values, out, async (backend) => {
      const wanted = operands[0] as string;
      const info = await find(backend, wanted);
      const showsLockId = values["show-lock-id"] === true;
      if (info === null) {
        const slots = (await findSlots(backend, wanted, out)).map((slot) =>
          shownLock(slot, showsLockId),
        );
        const [first] = slots;
        if (first === undefined) {
          const done = await readMark(backend, wanted);
          const shown = out.style("green", "free");
          out.result({ locked: false, ...(done && { done }) }, () =>
            done === null ? shown : `${shown}; done for ${printable(shownMark(done))}`,
          );
          return Exit.NO;
        }
        const { key, keyHash } = first;
        out.result({ locked: true, key, keyHash, slots }, () => tableOf(slots, showsLockId, out));
        return Exit.OK;
      }
      const lock = shownLock(ofLookup(info), showsLockId);
      const isOfKey = lock.slot === undefined && lock.gate === undefined;
      const done = isOfKey ? await readMark(backend, lock.key) : null;
      out.result({ locked: true, ...lock, ...(done && { done }) }, () =>
        out.pairs([
          ["state", "held"],
          ["key", keyOf(lock)],
          ["owner", lock.owner ?? "-"],
          ["fence", lock.fence],
          ["acquired", `${time(lock.acquiredAtMs)} (${age(lock)})`],
          ["expires", `${time(lock.expiresAtMs)} (${expiry(lock.expiresInMs)})`],
          ...(done === null ? [] : ([["done for", shownMark(done)]] as const)),
          ["key hash", lock.keyHash],
          ["lock id hash", lock.lockIdHash],
          ...(lock.lockId === undefined ? [] : ([["lock id", lock.lockId]] as const)),
        ]),
      );
      return Exit.OK;
    }),
};

async function find(
  backend: Backend,
  wanted: string,
): Promise<LockInfo<FencingCapabilities> | null> {
  const byKey = await backend.lookup({ key: wanted });
  if (byKey !== null || !isLockId(wanted)) return byKey;
  return await backend.lookup({ lockId: wanted });
}

/** The slots of a key that are in use. Of a user who may not list locks, none are known. */
async function findSlots(backend: Backend, key: string, out: Output): Promise<RawRecord[]> {
  try {
    return await slotsInUse(backend, key);
  } catch (error) {
    if (!(error instanceof LockError) || error.code !== "AuthFailed") throw error;
    out.note("slots were not looked for: the user may not list locks");
    return [];
  }
}

function isLockId(text: string): boolean {
  try {
    validateLockId(text);
    return true;
  } catch {
    return false;
  }
}
