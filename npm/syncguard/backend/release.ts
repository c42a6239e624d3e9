/** Releases locks by their ids. */

import { settle } from "../native/outcome.js";
import type { BackendContext } from "./context.js";
import { goneOf, notReleased } from "../holding/store-leases.js";
import {
  addIds,
  lastsOf,
  leave,
  noteReleased,
  type Part,
  partsOf,
  readIds,
  waitedFor,
} from "./parts.js";
import { given, startingSignal } from "../values/arguments.js";
import type { LockOp, LocksOp, ReleaseResult } from "../values/types.js";

export async function release(on: BackendContext, opts: LockOp | LocksOp): Promise<ReleaseResult> {
  const named: Partial<LockOp & LocksOp> = given(opts);
  const { store, grants, waiters } = on;
  let parts: readonly Part[] = [];
  try {
    const lockIds = readIds(opts);
    const signal = startingSignal(opts);
    grants.checkNotClosed();
    grants.start();
    parts = partsOf(lockIds, grants);
    /** The parts that are all that was left of their lease. */
    const whole = parts.filter((part) => leave(part, grants));
    try {
      const keys = waitedFor(parts, waiters);
      const outcome = settle(await store.release(lockIds, signal, lastsOf(parts, lockIds), keys));
      const gone = goneOf(lockIds, outcome);
      for (const part of parts) noteReleased(part, gone, whole.includes(part));
      if (gone.length === 0) return { ok: true };
      return notReleased(outcome, lockIds.indexOf(gone[0] as string));
    } catch (error) {
      noteFailed(on, whole);
      throw error;
    } finally {
      grants.end();
    }
  } catch (error) {
    throw addIds(error, named, parts);
  }
}

/** Notes a release that has failed, which the store may have carried out all the same. */
function noteFailed({ grants }: BackendContext, whole: readonly Part[]): void {
  for (const { lease, lockIds, isOwn } of whole) {
    if (!isOwn) continue;
    lease.freed(lockIds);
    grants.add(lease);
  }
}
