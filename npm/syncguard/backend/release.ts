/** Releases locks by their ids. */

import { type Absence, type Failure, settle } from "../native/outcome.js";
import type { BackendContext } from "./context.js";
import type { ReleaseArguments } from "../holding/internals.js";
import type { Lease } from "../holding/lease.js";
import { failure } from "../values/mutation.js";
import {
  addIds,
  goneOf,
  lastsOf,
  leave,
  noteReleased,
  type Part,
  partsOf,
  readIds,
  waitedFor,
} from "./parts.js";
import { given, startingSignal } from "../values/starting.js";
import type { LockOp, LocksOp, ReleaseResult } from "../values/types.js";

/** @param lease - the lock, if its handle releases it */
export async function release(
  on: BackendContext,
  opts: ReleaseArguments,
  lease: Lease | undefined,
): Promise<ReleaseResult> {
  const named: Partial<LockOp & LocksOp> = given(opts);
  let parts: readonly Part[] = [];
  try {
    const lockIds = readIds(opts);
    const signal = startingSignal(opts);
    on.grants.checkNotClosed();
    on.grants.start();
    parts = partsOf(lockIds, on.grants);
    /** Those of which nothing is left. */
    const whole = parts.filter((part) => leave(part, on.grants));
    try {
      const outcome = settle(await send(on, { lockIds, parts, signal }, opts, lease));
      const gone = goneOf(lockIds, outcome);
      // Somebody else may be releasing what its handle does: then each finds gone what the other one has freed.
      lease?.freed(
        gone.length === 0 ? lockIds : lockIds.filter((lockId) => !gone.includes(lockId)),
      );
      for (const part of parts) noteReleased(part, gone, whole.includes(part));
      if (gone.length === 0) return { ok: true };
      const place = lockIds.indexOf(gone[0] as string);
      return failure(typeof outcome === "string" ? outcome : "not-found", place);
    } catch (error) {
      noteFailed(on, whole, opts.holdMs);
      throw error;
    } finally {
      on.grants.end();
    }
  } catch (error) {
    throw addIds(error, named, parts);
  }
}

/** What is released. */
type Releases = {
  readonly lockIds: readonly string[];
  readonly parts: readonly Part[];
  readonly signal: AbortSignal | undefined;
};

/** No async function: it would cost each release a promise more. */
function send(
  { store, waiters }: BackendContext,
  { lockIds, parts, signal }: Releases,
  { due, holdMs }: ReleaseArguments,
  lease: Lease | undefined,
): Promise<true | readonly boolean[] | Absence | Failure> {
  const lastsMs = lastsOf(parts, lockIds);
  if (lease !== undefined && due !== undefined) {
    return store.finish(lease.lockId, lease.key, due, lastsMs);
  }
  const keys = holdMs === undefined ? waitedFor(parts, waiters) : undefined;
  return store.release(lockIds, signal, lastsMs, keys, holdMs);
}

/** The store may have carried out a release that has failed. */
function noteFailed(
  { grants }: BackendContext,
  whole: readonly Part[],
  holdMs: number | undefined,
): void {
  for (const { lease, lockIds, isOwn } of whole) {
    if (!isOwn) continue;
    lease.freed(lockIds);
    // What is to be held for longer goes on in the background: `releaseAll()` must not free it sooner.
    if (holdMs === undefined) grants.add(lease);
  }
}
