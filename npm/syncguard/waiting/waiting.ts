/**
 * Waits for a lock, on any backend: the core waits for those of this package, and a loop in JavaScript for all others.
 *
 * This room knows how to wait: attempts, pauses, cancellation, wake-ups, and the loop for backends that cannot wait themselves.
 * It must not know how a backend asks its store, or which store that is.
 */

import { addContext, LockError } from "../native/errors.js";
import { readSignal } from "../native/signal.js";
import { beginWait, Policy, type Wait } from "../values/wait.js";
import { type OptionNames, optionNames, WAITING } from "../options/names.js";
import { checkObject } from "../options/validation.js";
import { type Cancellation, watchSignals } from "./cancellation.js";
import { heldAround, INSIDE, type Outer, warnOfInside } from "../holding/chain.js";
import { addTarget, claimsOf, type LockTarget } from "../values/claims.js";
import { systemClock } from "../values/clock.js";
import { type Observation, subject } from "../watching/events.js";
import type { WantedTerms } from "../holding/grant.js";
import type { Lease } from "../holding/lease.js";
import { leaseWithHandle, type LeaseWithHandle } from "../holding/handle.js";
import { giveBack } from "../holding/held.js";
import { argumentsOf, type Holding } from "../holding/options.js";
import { accessTo, acquireOf, type Internals, internalsOf } from "../holding/internals.js";
import { acquireByAsking } from "./users.js";
import type {
  AcquireOk,
  AcquisitionOptions,
  BackendCapabilities,
  LockBackendLike,
} from "../values/types.js";

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
  const { target, holding } = request;
  const { key } = target;
  const around = (): Outer | undefined => heldAround(origin, claimsOf(target));
  const own = acquireOf(backend);
  const acquire = own ?? acquireByAsking(backend, target);
  const policy = policyOf(request, key);

  const wait = beginWait(policy, clock.now());
  const cancellation = watchSignals(holding.signal, acquisitionSignal, key);
  try {
    cancellation?.check();
    const args = { ...argumentsOf(key, holding), signal: cancellation?.signal };
    const outer = own !== undefined && policy.waits ? around() : undefined;
    if (outer !== undefined) warnOfInside(outer);
    const result = (await acquire(args, { wait, target, terms: holding })) as AcquireOk<C>;
    const acquired = leaseWithHandle(result);
    if (cancellation?.isAborted() === true) {
      // The lock was granted before the abort, and wrappers took a moment to pass it on.
      giveBack(acquired.lease, accessTo(backend), holding.onReleaseError);
      throw cancellation.error();
    }
    tell(internals, target, wait, own !== undefined, outcomeOf(acquired.lease));
    return acquired;
  } catch (thrown) {
    const error = addTarget(explain(thrown, around, key, cancellation), target);
    tell(internals, target, wait, own !== undefined, { result: "fail", error });
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

/** The error of a wait. After an abort it says so, and it names the reason if the caller has waited for itself. */
function explain(
  error: unknown,
  around: () => Outer | undefined,
  key: string,
  cancellation: Cancellation | undefined,
): unknown {
  if (cancellation?.isAborted() === true) return cancellation.error();
  const isLate = error instanceof LockError && error.code === "AcquisitionTimeout";
  const outer = isLate ? around() : undefined;
  if (isLate && outer !== undefined) {
    return new LockError(error.code, error.message + INSIDE[outer], { ...error.context, key });
  }
  return addContext(error, key);
}

/** What observers are told of a wait that got its lock. Several locks have no single lock id, so none is told. */
function outcomeOf({ isSet, lockId }: Lease): Pick<Observation, "result" | "lockId"> {
  return isSet ? { result: "ok" } : { result: "ok", lockId };
}

/** Tells observers how a wait has ended. If the backend has waited by itself, nobody has told of its attempts, so this also tells of an acquisition. */
function tell(
  internals: Internals | undefined,
  target: LockTarget,
  { startMs, attempts, contended, wakeups, lastMs }: Wait,
  hasWaited: boolean,
  outcome: Pick<Observation, "result" | "lockId" | "error">,
): void {
  if (internals === undefined) return;
  const { stream, clock } = internals;
  if (!stream.hears("wait") && !stream.hears("acquire")) return;
  const report = {
    ...subject(target),
    waitMs: clock.now() - startMs,
    attempts,
    wakeups,
    ...outcome,
  };
  if (hasWaited && attempts > 0) {
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
