/**
 * Asks backends that neither wait nor know how a lock is to be held: users' own, and those whose `acquire` a user has replaced. What this
 * file gives acquires as the backends of this package do.
 */

import type { Busy } from "../native/outcome.js";
import { LockError } from "../native/errors.js";
import { invalid } from "../options/validation.js";
import { LABELS } from "../values/arguments.js";
import { readAutoExtend } from "../values/auto-extend.js";
import { argumentsOfTarget, claimsOf, isBesideKey, type LockTarget } from "../values/claims.js";
import { systemClock } from "../values/clock.js";
import type { Wait } from "../values/wait.js";
import { heldAround, warnOfInside } from "../holding/chain.js";
import { handleOfCall, leaseOf } from "../holding/handle.js";
import { startHeartbeats } from "../holding/heartbeats.js";
import { giveBack } from "../holding/held.js";
import {
  type AcquireArguments,
  type Asked,
  accessTo,
  internalsOf,
  type Operations,
  operationOf,
} from "../holding/internals.js";
import type { Lease } from "../holding/lease.js";
import { UsersLeases } from "../holding/users-leases.js";
import type {
  AcquireOk,
  AcquireResult,
  BackendCapabilities,
  LockBackendLike,
} from "../values/types.js";
import { normalizeAndValidateKey } from "../values/values.js";
import { type Cancellation, CANCELLED, watchSignals } from "./cancellation.js";
import { askUntilHeld, type Locked } from "./polling.js";

/** The error where a user's own backend is asked for more than a key. */
export const ONE_AT_A_TIME =
  "this backend takes one key at a time: several keys, slots and shared locks need a backend of this package";

/**
 * Acquires a lock by asking until it is granted.
 *
 * @throws LockError `InvalidArgument` for anything but one key alone, if the backend is a user's own
 */
export function acquireByAsking<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  target: LockTarget,
): Operations<C>["acquire"] {
  const { clock = systemClock, origin = backend, grants } = internalsOf(backend) ?? {};
  const what = grants === undefined ? oneKey(target) : argumentsOfTarget(target);
  const attempt = attemptOf(backend);
  const { key } = target;
  const onLocked = (): void => {
    const outer = heldAround(origin, claimsOf(target));
    if (outer !== undefined) warnOfInside(outer);
  };
  return async (opts, asked) => {
    const { terms } = asked ?? {};
    const wait = asked?.wait as Wait;
    const cancellation = watchSignals(opts.signal, undefined, key);
    const giveUp = (late: AcquireResult<C>): void => {
      const lease = leaseOf(late);
      if (lease !== undefined) giveBack(lease, accessTo(backend), terms?.onReleaseError);
    };
    const ask = async (): Promise<AcquireOk<C> | Locked> => {
      const pending = attempt({ ...opts, ...what } as AcquireArguments, { wait, terms });
      const result = await (cancellation?.race(pending) ?? pending);
      if (result === CANCELLED) {
        pending.then(giveUp, () => undefined);
        throw (cancellation as Cancellation).error();
      }
      return result.ok ? result : { ok: false, busy: busyOf(result) };
    };
    try {
      return await askUntilHeld<AcquireOk<C>>({ key, clock, wait, cancellation, ask, onLocked });
    } finally {
      cancellation?.stop();
    }
  };
}

/** The key in the spelling of all stores, because two spellings of a key are one lock and the backend may not know that. */
function oneKey({ key, claims }: LockTarget): { key: string } {
  if (claims !== undefined) throw invalid(ONE_AT_A_TIME);
  return { key: normalizeAndValidateKey(key) };
}

/** One attempt on any backend, for a lock on the terms that are asked for. */
export function attemptOf<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
): Operations<C>["acquire"] {
  const operation = operationOf(backend);
  if (operation !== undefined) return operation;
  // A wrapper and a backend of this package know all arguments, also where a user has replaced their `acquire`.
  if (internalsOf(backend) === undefined) return attemptOfUsers(backend);
  return async (opts, asked) => handleOn(backend, await backend.acquire(opts), opts, asked);
}

/**
 * One attempt on a user's own backend. That knows neither several locks nor `autoExtend`, so its locks are extended from here. Such
 * extensions are no operations of users, so they are counted and not reported.
 */
function attemptOfUsers<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
): Operations<C>["acquire"] {
  return async (opts, asked) => {
    const { ttlMs, claims, autoExtend: wanted } = opts ?? {};
    if ((claims ?? undefined) !== undefined || isBesideKey(opts ?? {}))
      throw invalid(ONE_AT_A_TIME);
    const startedMs = systemClock.elapsed();
    const autoExtend = readAutoExtend(wanted, ttlMs);
    const answer = await backend.acquire(withoutAutoExtend(opts));
    const handle = handleOn(backend, answer, opts, asked);
    if (autoExtend !== undefined && handle?.ok) {
      const beating = { ttlMs, startedMs, autoExtend };
      startHeartbeats(new UsersLeases(backend), handle, leaseOf(handle) as Lease, beating);
    }
    return handle;
  };
}

/** Makes a handle of the answer to an attempt. Within a wait, the answer is checked first, because the wait goes by it. */
function handleOn<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  answer: AcquireResult<C>,
  opts: AcquireArguments,
  { wait, terms }: Asked = {},
): AcquireResult<C> {
  const { key } = opts ?? {};
  const result = wait === undefined ? answer : checkResult(backend, answer, key);
  return result?.ok ? handleOfCall(backend, result, key ?? leaseOf(result)?.key, terms) : result;
}

/** The arguments for a backend that does not know `autoExtend`. */
function withoutAutoExtend(opts: AcquireArguments): AcquireArguments {
  if (opts === null || typeof opts !== "object" || !("autoExtend" in opts)) return opts;
  const rest = { ...opts };
  delete rest.autoExtend;
  return rest;
}

/** What a backend has said of the lock that stood in the way. A user may have written the backend, so members may be anything. */
function busyOf(result: object): Busy | undefined {
  const said = result as Record<string, unknown>;
  const { retryAfterMs } = said;
  const busy: Busy = {};
  if (typeof retryAfterMs === "number" && retryAfterMs >= 0) busy.retryAfterMs = retryAfterMs;
  for (const name of LABELS) {
    const text = said[name];
    if (typeof text === "string") busy[name] = text;
  }
  return Object.keys(busy).length === 0 ? undefined : busy;
}

/** Checks the result of an attempt that is part of a wait, because a user may have written the backend. */
function checkResult<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  result: AcquireResult<C>,
  key: string,
): AcquireResult<C> {
  if (typeof result === "object" && result !== null) {
    if (leaseOf(result)?.isSet === true) return result;
    const { ok, lockId, expiresAtMs, fence } = result as Record<string, unknown>;
    if (ok === false) return result;
    if (
      ok === true &&
      typeof lockId === "string" &&
      lockId !== "" &&
      Number.isFinite(expiresAtMs) &&
      (typeof fence === "string" ||
        (fence === undefined && backend.capabilities?.supportsFencing !== true))
    ) {
      return result;
    }
  }
  throw new LockError("Internal", "the backend returned a malformed acquire result", { key });
}
