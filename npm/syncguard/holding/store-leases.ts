/** Releases and extends the locks of a store for their holders, in one call each. */

import { addContext } from "../native/errors.js";
import { type Absence, type Failure, type MissingLock, settle } from "../native/outcome.js";
import { storedKey } from "../values/slots.js";
import type { Store } from "../native/store.js";
import { checkTtl, startingSignal } from "../values/arguments.js";
import { failure } from "../values/mutation.js";
import type { ExtendResult, ReleaseResult } from "../values/types.js";
import type { Grants } from "./grants.js";
import type { HowToRelease, LeaseOperations } from "./internals.js";
import type { Lease } from "./lease.js";

/** Knows for which keys others of this process wait. */
export type WaitedFor = { readonly areNone: boolean; has(key: string): boolean };

/** The store's answer to a release: done, done for some of several locks, or why the lock is absent. */
export type Released = true | readonly boolean[] | Absence;

export class StoreLeases implements LeaseOperations {
  constructor(
    private readonly store: Pick<Store, "release" | "extend" | "finish">,
    private readonly grants: Grants,
    private readonly waiters: WaitedFor,
  ) {}

  async release(lease: Lease, how: HowToRelease): Promise<ReleaseResult> {
    const { grants } = this;
    const { lockIds } = lease;
    try {
      const signal = how.signal === undefined ? undefined : startingSignal(how);
      grants.checkNotClosed();
      grants.start();
      const isOwn = grants.removeLease(lease);
      // Another backend has granted the lock, and may still send heartbeats; or it is released already.
      if (!isOwn) lease.stopHeartbeats(lockIds);
      try {
        const outcome = await this.sendRelease(lease, lockIds, how, signal);
        if (outcome !== true) return releasedNotAll(lease, lockIds, settle(outcome));
        lease.freed(lockIds);
        return { ok: true };
      } catch (error) {
        if (isOwn) this.noteFailed(lease, lockIds, how);
        throw error;
      } finally {
        grants.end();
      }
    } catch (error) {
      throw addNames(error, lease, lockIds);
    }
  }

  async extend(
    lease: Lease,
    ttlMs: number,
    signal: AbortSignal | undefined,
  ): Promise<ExtendResult> {
    try {
      checkTtl(ttlMs);
      const checked = signal === undefined ? undefined : startingSignal({ signal });
      this.grants.checkOpen();
      return await this.beat(lease, ttlMs, checked);
    } catch (error) {
      throw addNames(error, lease, lease.lockIds);
    }
  }

  /** Sends a heartbeat. */
  async beat(lease: Lease, ttlMs: number, signal: AbortSignal | undefined): Promise<ExtendResult> {
    return extensionOf(await this.store.extend(lease.lockIds, ttlMs, signal));
  }

  /** This is no async function, because that would cost each release one more promise. */
  private sendRelease(
    lease: Lease,
    lockIds: readonly string[],
    { due, holdMs }: HowToRelease,
    signal: AbortSignal | undefined,
  ): Promise<Released | Failure> {
    const lastsMs = Math.ceil(lease.lastsMs);
    if (due !== undefined) return this.store.finish(lease.lockId, lease.key, due, lastsMs);
    const keys =
      holdMs === undefined && !this.waiters.areNone ? waitedFor(lease, this.waiters) : undefined;
    return this.store.release(lockIds, signal, lastsMs, keys, holdMs);
  }

  /** Notes a release that has failed, which the store may have carried out all the same. */
  private noteFailed(lease: Lease, lockIds: readonly string[], { holdMs }: HowToRelease): void {
    lease.freed(lockIds);
    // A lock with `holdMs` is not put back, because `releaseAll()` must not free it sooner.
    if (holdMs === undefined) this.grants.add(lease);
  }
}

/** Those keys of a lease for which others of this process wait, as the store names them. */
function waitedFor(lease: Lease, waiters: WaitedFor): string[] {
  if (lease.left === undefined) return waiters.has(lease.key) ? [lease.key] : [];
  return lease.left.filter(({ key }) => waiters.has(key)).map(storedKey);
}

/** Notes the locks that were not there when they were to be released, and gives the result. */
function releasedNotAll(
  lease: Lease,
  lockIds: readonly string[],
  outcome: Released,
): ReleaseResult {
  const gone = goneOf(lockIds, outcome);
  // Somebody may release the same locks by their ids at this moment. Then each finds gone what the other one has freed.
  lease.freed(lockIds.filter((lockId) => !gone.includes(lockId)));
  const [first] = gone;
  if (first === undefined) return { ok: true };
  lease.gone(first);
  return notReleased(outcome, lockIds.indexOf(first));
}

/** The ids of the locks that a release did not find. */
export function goneOf(lockIds: readonly string[], outcome: Released): string[] {
  if (outcome === true) return [];
  if (typeof outcome === "string") return [...lockIds];
  return lockIds.filter((_, place) => outcome[place] !== true);
}

/** The result of a release that did not find the lock at this place. */
export function notReleased(outcome: Released, place: number): ReleaseResult {
  return failure(typeof outcome === "string" ? outcome : "not-found", place);
}

/** The result of an extension. */
export function extensionOf(outcome: number | Absence | MissingLock | Failure): ExtendResult {
  if (typeof outcome === "number") return { ok: true, expiresAtMs: outcome };
  const missing = settle(outcome);
  return typeof missing === "object" ? failure(missing.absence, missing.lock) : failure(missing, 0);
}

/** Adds to an error the keys and ids of its locks. Those of several that were released by their ids are left out. */
function addNames(error: unknown, lease: Lease, lockIds: readonly string[]): unknown {
  if (!lease.isSet) return addContext(error, lease.key, lease.lockId);
  const { keys } = lease;
  return addContext(error, keys[0], lockIds[0], { keys, lockIds });
}
