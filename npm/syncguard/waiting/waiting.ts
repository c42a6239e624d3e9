/**
 * Waits for a lock, on any backend: the core waits for those of this package, and a loop in JavaScript for all others.
 *
 * This room knows how to wait: attempts, pauses, cancellation, wake-ups, and the loop for backends that cannot wait themselves.
 * It must not know how a backend asks its store, or which store that is.
 */

import type { Busy } from "../native/outcome.js";
import { addContext, LockError } from "../native/errors.js";
import { readSignal } from "../native/signal.js";
import { beginWait, Policy, type Wait } from "../values/wait.js";
import { type OptionNames, optionNames, WAITING } from "../options/names.js";
import { checkObject, invalid } from "../options/validation.js";
import { type Cancellation, CANCELLED, watchSignals } from "./cancellation.js";
import { INSIDE, isInside, warnOfInside } from "../holding/chain.js";
import { addTarget, type LockTarget, exclusiveKeys } from "../values/claims.js";
import { systemClock } from "../values/clock.js";
import { type Observation, subject } from "../watching/events.js";
import type { WantedTerms } from "../holding/grant.js";
import type { Lease } from "../holding/lease.js";
import {
  handleOfCall,
  handleOnTerms,
  leaseOf,
  leaseWithHandle,
  type LeaseWithHandle,
} from "../holding/handle.js";
import { startHeartbeats } from "../holding/heartbeats.js";
import type { Holding } from "../holding/options.js";
import {
  type AcquireArguments,
  type Internals,
  internalsOf,
  acquireOf,
} from "../holding/internals.js";
import { askUntilHeld, type Locked } from "./polling.js";
import { releaseInBackground } from "../holding/held.js";
import { reported } from "../holding/together.js";
import { UsersLeases } from "../holding/users-leases.js";
import type {
  AcquireOk,
  AcquireResult,
  AcquisitionOptions,
  BackendCapabilities,
  LockBackendLike,
} from "../values/types.js";
import { normalizeAndValidateKey } from "../values/values.js";

/** What to acquire and how to wait, as the caller gave it: `null` counts as not given. */
export type AcquisitionRequest = {
  target: LockTarget;
  /** How the lock is to be held. Its `onReleaseError` also hears of the release of a lock that was granted too late. */
  holding: Holding & Pick<WantedTerms, "leads">;
  acquisition: AcquisitionOptions | null | undefined;
  /** Counts where `acquisition` says nothing. */
  defaults: Policy;
  /** Called for members of `acquisition` that are no options. */
  onUnknown: (options: object, names: OptionNames) => void;
};

const OPTIONS = optionNames("acquisition", [...WAITING, "signal"]);

/** Resolves once the lock is held: with the backend's own result, if that is a handle. */
export async function acquireUntilHeld<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  request: AcquisitionRequest,
): Promise<LeaseWithHandle<C>> {
  const acquisitionSignal = readAcquisitionSignal(request);
  const internals = internalsOf(backend);
  const { clock = systemClock, origin = backend } = internals ?? {};
  const isOurs = internals?.grants !== undefined;
  const { target, holding } = request;
  const key = isOurs ? target.key : keyForUsers(target);
  const isInsideItself = (): boolean => isInside(origin, isOurs ? exclusiveKeys(target) : [key]);
  const warnIfInside = (): void => {
    if (isInsideItself()) warnOfInside();
  };
  const policy = policyOf(request, key);

  const wait = beginWait(policy, clock.now());
  const cancellation = watchSignals(holding.signal, acquisitionSignal, key);
  try {
    cancellation?.check();
    const args = argumentsFor(holding, key, cancellation, internals);
    const acquire = acquireOf(backend);
    let result: AcquireOk<C>;
    let startedMs = 0;
    if (acquire !== undefined && isOurs) {
      if (policy.waits) warnIfInside();
      result = (await acquire(args, { wait, target, terms: holding })) as AcquireOk<C>;
      if (cancellation?.isAborted() === true) {
        // The lock was granted before the abort, and wrappers took a moment to pass it on.
        giveBack(backend, result, key, holding);
        throw cancellation.error();
      }
    } else {
      const ask = async (): Promise<AcquireOk<C> | Locked> => {
        startedMs = clock.elapsed();
        const pending =
          acquire === undefined ? backend.acquire(args) : acquire(args, { wait, terms: holding });
        return await attempt(backend, pending, key, holding, cancellation);
      };
      const polling = { key, clock, wait, cancellation, ask, onLocked: warnIfInside };
      result = await askUntilHeld<AcquireOk<C>>(polling);
    }
    const acquired =
      acquire === undefined
        ? adopt(backend, result, request, internals, startedMs)
        : leaseWithHandle(backend, result, target.key);
    tell(internals, target, wait, outcomeOf(acquired.lease));
    return acquired;
  } catch (thrown) {
    const error = addTarget(explain(thrown, isInsideItself, key, cancellation), target);
    tell(internals, target, wait, { result: "fail", error });
    throw error;
  } finally {
    cancellation?.stop();
  }
}

/** The signal among the options that say how to wait, whose names are checked first. */
function readAcquisitionSignal({
  acquisition,
  onUnknown,
}: AcquisitionRequest): AbortSignal | undefined {
  if (acquisition === undefined || acquisition === null) return undefined;
  checkObject(acquisition, "acquisition");
  onUnknown(acquisition, OPTIONS);
  return readSignal(acquisition.signal, "acquisition.signal");
}

/** The key for a user's own backend. It is normalised, because two spellings of a key are one lock and the backend may not know that. */
function keyForUsers({ key, claims }: LockTarget): string {
  if (claims !== undefined) throw invalid(ONE_AT_A_TIME);
  return normalizeAndValidateKey(key);
}

/** The argument of `acquire()`. */
function argumentsFor(
  { ttlMs, labels, autoExtend }: Holding,
  key: string,
  cancellation: Cancellation | undefined,
  internals: Internals | undefined,
): AcquireArguments {
  const args: { -readonly [Name in keyof AcquireArguments]: AcquireArguments[Name] } = {
    key,
    ttlMs,
    signal: cancellation?.signal,
  };
  if (labels !== undefined) Object.assign(args, labels);
  if (autoExtend !== undefined && internals !== undefined) args.autoExtend = autoExtend;
  return args;
}

/** Takes over a lock whose backend could not be told how it is to be held. */
function adopt<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  result: AcquireOk<C>,
  { target: { key }, holding }: AcquisitionRequest,
  internals: Internals | undefined,
  startedMs: number,
): LeaseWithHandle<C> {
  if (internals !== undefined) {
    const { lease, handle } = leaseWithHandle(backend, result, key);
    return leaseWithHandle(backend, handleOnTerms(backend, handle, lease, holding), key);
  }
  const adopted = leaseWithHandle(backend, handleOfCall(backend, result, key, holding), key);
  const { ttlMs, autoExtend } = holding;
  // A backend of users' own does not know the option.
  if (autoExtend !== undefined) {
    const { handle, lease } = adopted;
    startHeartbeats(new UsersLeases(backend), handle, lease, { ttlMs, startedMs, autoExtend });
  }
  return adopted;
}

/** The error where a user's own backend is asked for more than a key. */
export const ONE_AT_A_TIME =
  "this backend takes one key at a time: several keys, slots and shared locks need a backend of this package";

/** Frees a lock that was granted to somebody who has cancelled. */
function giveBack<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  result: AcquireOk<C>,
  key: string,
  terms: WantedTerms | undefined,
): void {
  const lease = leaseOf(result);
  const { lockId } = result;
  // A backend of users' own may have named another key than it was asked for.
  const lock = lease?.isSet === true ? reported(lease, undefined) : { lockId, key };
  releaseInBackground(backend, lease?.ids ?? { lockId }, lock, terms?.onReleaseError);
}

/** The error of a wait. After an abort it says so, and it names the reason if the caller has waited for itself. */
function explain(
  error: unknown,
  isInsideItself: () => boolean,
  key: string,
  cancellation: Cancellation | undefined,
): unknown {
  if (cancellation?.isAborted() === true) return cancellation.error();
  const isLate = error instanceof LockError && error.code === "AcquisitionTimeout";
  if (isLate && isInsideItself()) {
    return new LockError(error.code, error.message + INSIDE, { ...error.context, key });
  }
  return addContext(error, key);
}

/** What observers are told of a wait that got its lock. Several locks have no single lock id, so none is told. */
function outcomeOf({ isSet, lockId }: Lease): Pick<Observation, "result" | "lockId"> {
  return isSet ? { result: "ok" } : { result: "ok", lockId };
}

/** Tells observers how a wait has ended. If the core has waited, nobody has told of its attempts, so this also tells of an acquisition. */
function tell(
  internals: Internals | undefined,
  target: LockTarget,
  { startMs, attempts, contended, wakeups, lastMs }: Wait,
  outcome: Pick<Observation, "result" | "lockId" | "error">,
): void {
  if (internals === undefined) return;
  const { stream, clock, grants } = internals;
  if (!stream.hears("wait") && !stream.hears("acquire")) return;
  const report = {
    ...subject(target),
    waitMs: clock.now() - startMs,
    attempts,
    wakeups,
    ...outcome,
  };
  if (grants !== undefined && attempts > 0) {
    const { error, ...other } = report;
    const isLocked = error instanceof LockError && error.code === "AcquisitionTimeout";
    stream.tell({
      ...other,
      ...(isLocked ? { reason: "locked" } : { error }),
      type: "acquire",
      durationMs: lastMs,
      contended,
    });
  }
  stream.tell({ ...report, type: "wait" });
}

/** An attempt that was started. If the lock is granted after the cancellation, it is released. */
async function attempt<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  pending: Promise<AcquireResult<C>>,
  key: string,
  terms: WantedTerms | undefined,
  cancellation: Cancellation | undefined,
): Promise<AcquireOk<C> | Locked> {
  let result: AcquireResult<C>;
  if (cancellation === undefined) {
    result = checkResult(backend, await pending, key);
  } else {
    const first = await cancellation.race(pending);
    if (first === CANCELLED) {
      Promise.resolve(pending).then(
        (late) => {
          if (late?.ok) giveBack(backend, late, key, terms);
        },
        () => undefined,
      );
      throw cancellation.error();
    }
    result = checkResult(backend, first, key);
    if (cancellation.signal.aborted) {
      if (result.ok) giveBack(backend, result, key, terms);
      throw cancellation.error();
    }
  }
  return result.ok ? result : { ok: false, busy: busyOf(result) };
}

/** What a backend has said of the lock that stood in the way. A user may have written the backend, so members may be anything. */
function busyOf(result: object): Busy | undefined {
  const { retryAfterMs, owner } = result as Record<string, unknown>;
  const busy: Busy = {};
  if (typeof retryAfterMs === "number" && retryAfterMs >= 0) busy.retryAfterMs = retryAfterMs;
  if (typeof owner === "string") busy.owner = owner;
  return Object.keys(busy).length === 0 ? undefined : busy;
}

/** How to wait. Options that are not given come from `defaults`. */
function policyOf({ acquisition, defaults }: AcquisitionRequest, key: string): Policy {
  if (acquisition === undefined || acquisition === null) return defaults;
  try {
    return Policy.of({
      maxRetries: acquisition.maxRetries ?? defaults.maxRetries,
      retryDelayMs: acquisition.retryDelayMs ?? defaults.retryDelayMs,
      maxRetryDelayMs: acquisition.maxRetryDelayMs ?? defaults.maxRetryDelayMs,
      timeoutMs: acquisition.timeoutMs ?? defaults.timeoutMs,
      backoff: acquisition.backoff ?? defaults.backoff,
      jitter: acquisition.jitter ?? defaults.jitter,
      wait: acquisition.wait ?? defaults.wait,
    });
  } catch (error) {
    throw addContext(error, key);
  }
}

/** Checks that a result is well-formed, because a user may have written the backend. */
function checkResult<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  result: AcquireResult<C>,
  key: string,
): AcquireResult<C> {
  if (typeof result === "object" && result !== null) {
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
