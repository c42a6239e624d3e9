/** Runs a function once for each period. */

import { LockError } from "../native/errors.js";
import { namesOf, optionNames, refuseUnknown } from "../options/names.js";
import { checkBooleans, checkFunction, checkObject, invalid } from "../options/validation.js";
import { LABEL_OPTIONS } from "../values/arguments.js";
import { claimsOf } from "../values/claims.js";
import { runInside } from "../holding/chain.js";
import { type Done, readDue } from "../values/due.js";
import { isFarAhead } from "../values/period.js";
import { disposalOf, leaseWithHandle } from "../holding/handle.js";
import { disposeHeld, finishHeld, releaseUnused } from "../holding/held.js";
import { accessTo, acquireOf, type HolderAccess, internalsOf } from "../holding/internals.js";
import type { Lease } from "../holding/lease.js";
import { argumentsOf, readHolding } from "../holding/options.js";
import { createLockHandle } from "./lock.js";
import type {
  BackendCapabilities,
  LockBackendLike,
  OnceHandle,
  OnceOptions,
  OnceResult,
} from "../values/types.js";

const OPTIONS = optionNames(
  "once()",
  namesOf<OnceOptions>({
    ...LABEL_OPTIONS,
    due: true,
    allowAhead: true,
    ttlMs: true,
    signal: true,
    autoExtend: true,
    onReleaseError: true,
    onLost: true,
    disposeTimeoutMs: true,
  }),
);

/** The function of `once()`. */
export type OnceWork<T, C extends BackendCapabilities> = (handle: OnceHandle<C>) => Promise<T> | T;

/** Runs `fn` under the lock on `key` if nothing was done for its period yet, and stores that it is done. */
export async function runOnce<T, C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  key: string,
  options: OnceOptions,
  fn: OnceWork<T, C>,
): Promise<OnceResult<T>> {
  if (typeof key !== "string") throw invalid("once() takes one key");
  if (typeof options === "function") {
    throw invalid("once() takes the options before the function: once(key, { due }, fn)");
  }
  checkObject(options, "options");
  refuseUnknown(options, OPTIONS);
  checkFunction(fn, "fn");
  const due = readDue(options.due);
  const { allowAhead = false } = options;
  checkBooleans({ allowAhead });
  const holding = readHolding(options);
  const { signal } = holding;
  const internals = internalsOf(backend);
  const acquire = acquireOf(backend);
  if (internals === undefined || acquire === undefined) {
    throw invalid("this backend cannot store what is done: once() needs a backend of this package");
  }
  const attempt = await acquire(argumentsOf(key, holding), { due, terms: holding });
  if (!attempt.ok) return refused(attempt);
  const { lease, handle } = leaseWithHandle<C>(attempt);
  const access = accessTo(backend);
  if (!allowAhead) await refuseFarAhead(access, lease, holding.ttlMs);
  /** Whether the store was asked to release the lock and to store that it is done. */
  let isFinishing = false;
  const run = async (): Promise<T> => {
    try {
      const lockHandle = createLockHandle(access, handle, key, lease, signal) as OnceHandle<C>;
      const value = await runInside(internals.origin, claimsOf({ key }), lease, () =>
        fn(lockHandle),
      );
      const finished = finishHeld(lease, access);
      isFinishing = finished !== undefined;
      if ((await finished)?.ok !== true) {
        throw lease.loss ?? new LockError("LockLost", "the lock was lost", { key });
      }
      return value;
    } finally {
      // The period stays open, so that whoever comes next does the work.
      if (!isFinishing) await disposeHeld(lease, access, disposalOf(handle));
    }
  };
  const { runHeld } = internals.stream;
  const value = await (runHeld === undefined ? run() : runHeld({ key }, run, () => lease.loss));
  return { ran: true, value };
}

/**
 * Gives a lock back if its period begins more than a day after its grant by the store's clock. Nothing was done under it yet.
 *
 * @throws LockError `InvalidArgument`
 */
export async function refuseFarAhead(
  access: HolderAccess,
  lease: Lease,
  ttlMs: number,
  { due, allowAhead } = { due: "due", allowAhead: "allowAhead" },
): Promise<void> {
  if (lease.due === undefined || !isFarAhead(lease.due, lease.expiresAtMs - ttlMs)) return;
  await releaseUnused(lease, access);
  throw invalid(
    `${due} begins more than a day after this moment of the store's clock, and once it is done all that is right would count as done: ` +
      `correct it, or the clock of this machine, or allow it with ${allowAhead}`,
  );
}

/** The result where the function does not run, with the reason. */
function refused(attempt: object): Extract<OnceResult<never>, { ran: false }> {
  const { done } = attempt as { done?: Done };
  if (done === undefined) return { ran: false, reason: "running" };
  return {
    ran: false,
    reason: done.isLater ? "ahead" : "done",
    doneAt: new Date(done.doneAtMs),
    lastDue: done.due,
  };
}
