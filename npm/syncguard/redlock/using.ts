/** What keeps the lock of `using` while its routine runs. */

import { claimsOf } from "../values/claims.js";
import { runInside } from "../holding/chain.js";
import { systemClock } from "../values/clock.js";
import { subjectOfKeys } from "../watching/events.js";
import { handleOfCall, leaseOf } from "../holding/handle.js";
import { startHeartbeats } from "../holding/heartbeats.js";
import { internalsOf } from "../holding/internals.js";
import type { Lease } from "../holding/lease.js";
import { UsersLeases } from "../holding/users-leases.js";
import type {
  ExtendResult,
  HeldLocks,
  LockOp,
  OnLost,
  ReleaseResult,
  SyncGuardBackend,
} from "../values/types.js";

/** Under which `using` gives to `acquire`, among the settings, that the lock is to extend itself. An override passes them on. */
export const EXTENDED: unique symbol = Symbol("extended");

/** What `using` gives so, and the locks that were taken for it. */
export type Extended = { readonly onLost: OnLost; readonly taken: HeldLocks[] };

/** What `acquire` was given by `using`, if it was called by that. */
export function extendedOf(settings: object | null | undefined): Extended | undefined {
  return (settings as { [EXTENDED]?: Extended } | null | undefined)?.[EXTENDED];
}

/** The lock of redlock's class, and of redlock itself. */
type Extendable = {
  readonly value: string;
  readonly resources: string[];
  readonly expiration: number;
  extend(duration: number): Promise<Extendable>;
};

/** A lock that is kept, and what is known of it. */
export type Kept<L> = {
  readonly lease: Lease;
  /** The lock as it was extended last. */
  readonly current: () => L;
  /** It is about to be released. */
  readonly stop: () => void;
};

/**
 * Keeps a lock that `acquire` has given: the core extends it, unless an override has taken it elsewhere. Then it is extended by its own
 * `extend`, on timers, as redlock does.
 */
export function keep<L extends Extendable>(
  lock: L,
  duration: number,
  everyMs: number,
  { taken, onLost }: Extended,
): Kept<L> {
  const held = taken.find(({ lockIds }) => lockIds.join() === lock.value);
  const own = held && leaseOf(held);
  if (own !== undefined) {
    // Until then somebody must have the handle: what is collected was forgotten, and is extended no more.
    const stop = (): void => void taken.splice(0);
    return { lease: own, current: () => lock, stop };
  }
  let current = lock;
  const elsewhere = {
    release: (_: LockOp): Promise<ReleaseResult> => Promise.resolve({ ok: true }),
    extend: async ({ ttlMs }: LockOp & { ttlMs: number }): Promise<ExtendResult> => {
      current = (await current.extend(ttlMs)) as L;
      return { ok: true, expiresAtMs: current.expiration };
    },
  };
  const { value: lockId, expiration: expiresAtMs, resources } = lock;
  const result = { ok: true, lockId, expiresAtMs } as const;
  const handle = handleOfCall(elsewhere, result, resources.join(", "), { onLost });
  const lease = leaseOf(handle) as Lease;
  const startedMs = systemClock.elapsed() - (duration - (expiresAtMs - Date.now()));
  const autoExtend = { everyMs, maxMs: Infinity, maxStallMs: Infinity };
  const beating = { ttlMs: duration, startedMs, autoExtend };
  startHeartbeats(new UsersLeases(elsewhere), handle, lease, beating);
  return { lease, current: () => current, stop: () => lease.end() };
}

/** Runs what is done under a lock, and its release, as `lock()` does: whoever observes the backend sees for how long it is held. */
export async function runHeld<T>(
  backend: SyncGuardBackend,
  resources: readonly string[],
  lease: Lease,
  routine: () => Promise<T>,
  release: () => Promise<void>,
): Promise<T> {
  const { origin = backend, stream } = internalsOf(backend) ?? {};
  const claims = resources.flatMap((key) => claimsOf({ key }));
  const run = async (): Promise<T> => {
    let result: T;
    try {
      result = await runInside(origin, claims, lease, routine);
    } catch (error) {
      // What the routine has thrown counts. Of the release, an event tells.
      await release().catch(() => undefined);
      throw error;
    }
    await release();
    return result;
  };
  const observed = stream?.runHeld;
  return await (observed === undefined
    ? run()
    : observed(subjectOfKeys(resources), run, () => lease.loss));
}
