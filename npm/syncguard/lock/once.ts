/** Something that is to be done once for each period. */

import { LockError } from "../native/errors.js";
import { readSignal } from "../native/signal.js";
import { optionNames, refuseUnknown } from "../options/names.js";
import { checkFunction, checkObject, invalid } from "../options/validation.js";
import { LABELS, readLabels, resolveTtl } from "./arguments.js";
import { readAutoExtend } from "./auto-extend.js";
import { runInside } from "./chain.js";
import { readDue } from "./due.js";
import { disposalOf, leaseWithHandle, readDisposal } from "./handle.js";
import { internalsOf, takeOf } from "./internals.js";
import { createLockHandle } from "./lock.js";
import type {
  BackendCapabilities,
  LockBackendLike,
  OnceHandle,
  OnceOptions,
  OnceResult,
} from "./types.js";

const OPTIONS = optionNames("once()", [
  ...["due", "ttlMs", "signal", "autoExtend", ...LABELS],
  ...["onReleaseError", "onLost", "disposeTimeoutMs"],
]);

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
  checkObject(options, "options");
  refuseUnknown(options, OPTIONS);
  checkFunction(fn, "fn");
  const due = readDue(options.due);
  const { onReleaseError, onLost, disposeTimeoutMs } = readDisposal(options);
  const ttlMs = resolveTtl(options.ttlMs);
  const autoExtend = readAutoExtend(options.autoExtend, ttlMs);
  const signal = readSignal(options.signal ?? undefined);
  const labels = readLabels(options);
  const internals = internalsOf(backend);
  const take = takeOf(backend);
  if (internals?.grants === undefined || take === undefined) {
    throw invalid("this backend cannot store what is done: once() needs a backend of this package");
  }
  const attempt = await take({ key, ttlMs, signal, autoExtend, due, ...labels });
  if (!attempt.ok) return refused(attempt);
  const { lease, handle } = leaseWithHandle<C>(backend, attempt, key);
  if (onLost !== undefined) lease.onLost = onLost;
  let isDone = false;
  const run = async (): Promise<T> => {
    try {
      const given = createLockHandle(backend, handle, key, lease, signal) as OnceHandle<C>;
      const value = await runInside(internals.origin, [key], lease, () => fn(given));
      const { ok } = await lease.finish(backend, () => (isDone = true));
      if (!ok) throw lease.loss ?? new LockError("LockLost", "the lock was lost", { key });
      return value;
    } finally {
      // It stays open: whoever comes next does it.
      if (!isDone) {
        const general = disposalOf(handle);
        await lease.dispose(backend, {
          onReleaseError: onReleaseError ?? general.onReleaseError,
          disposeTimeoutMs: disposeTimeoutMs ?? general.disposeTimeoutMs,
        });
      }
    }
  };
  const { runHeld } = internals.stream;
  const value = await (runHeld === undefined ? run() : runHeld({ key }, run, () => lease.loss));
  return { ran: true, value };
}

/** Why it does not run here and now. */
function refused(attempt: object): Extract<OnceResult<never>, { ran: false }> {
  const { done } = attempt as { done?: { due: string; doneAtMs: number } };
  if (done === undefined) return { ran: false, reason: "running" };
  return {
    ran: false,
    reason: "done",
    doneAt: new Date(done.doneAtMs),
    lastDue: done.due,
  };
}
