/** Runs a function in one process at a time, one term after another. */

import { clearInterval, setInterval } from "node:timers";
import type { LockError } from "../native/errors.js";
import { memberOf } from "../native/thrown.js";
import type { Policy } from "../values/wait.js";
import { CAMPAIGNING, FOLLOWING } from "../waiting/policies.js";
import { checkFunction, checkObject, invalid, LONGEST_TIMER_MS } from "../options/validation.js";
import { namesOf, optionNames, refuseUnknown } from "../options/names.js";
import { acquireUntilHeld } from "../waiting/waiting.js";
import { checkBackend, checkKey, LABEL_OPTIONS } from "../values/arguments.js";
import { claimsOf } from "../values/claims.js";
import { type Cancellation, watchSignals } from "../waiting/cancellation.js";
import { heldAround, runInside } from "../holding/chain.js";
import { type Clock, systemClock, type Timer } from "../values/clock.js";
import { disposalOf, type LeaseWithHandle } from "../holding/handle.js";
import { disposeHeld } from "../holding/held.js";
import { accessTo, internalsOf } from "../holding/internals.js";
import type { Lease } from "../holding/lease.js";
import { readHolding } from "../holding/options.js";
import { Refusals } from "../values/refusals.js";
import { reportLeadError } from "../watching/reports.js";
import { delayMs } from "../values/retry.js";
import type {
  AcquireOk,
  BackendCapabilities,
  FencingCapabilities,
  Leadership,
  LeadOptions,
  LockBackendLike,
} from "../values/types.js";

/** Read when this module is loaded, so that fake timers in users' tests do not run it. */
const keepAlive = setInterval;

const OPTIONS = optionNames(
  "lead()",
  namesOf<LeadOptions>({
    ...LABEL_OPTIONS,
    ttlMs: true,
    signal: true,
    autoExtend: true,
    onError: true,
    onLost: true,
  }),
);

/** How soon the next campaign starts. Whoever has ended its term by itself lets others come first. */
type Next = "at once" | "after others" | "after a failure";

/** Campaigns and leads, on any backend, until it is over. */
export async function runLeader<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  key: string,
  fn: (leadership: Leadership<C>) => unknown,
  options?: LeadOptions,
): Promise<void> {
  checkBackend(backend);
  checkKey(key);
  checkFunction(fn, "fn");
  const { holding, signal, onError } = readOptions(options);
  const { clock = systemClock, grants, origin = backend } = internalsOf(backend) ?? {};
  const ends = watchSignals(signal, grants?.refused, key);

  const campaign = async (defaults: Policy): Promise<LeaseWithHandle<C>> =>
    await acquireUntilHeld(backend, {
      ...{ target: { key }, holding, acquisition: undefined, defaults },
      onUnknown: refuseUnknown,
    });

  const serve = async ({ lease, handle }: LeaseWithHandle<C>): Promise<Next> => {
    const ending = lease.signalWith(signal);
    let failure: { error: unknown } | undefined;
    try {
      const leadership = leadershipOf(key, ending, handle, lease);
      await runInside(origin, claimsOf({ key }), lease, () => fn(leadership));
    } catch (error) {
      if (!isAnswerTo(ending, error)) failure = { error };
    }
    // The handle must live until now, so that the lock does not count as forgotten during the term.
    const disposal = disposalOf(handle);
    // A lock that releaseAll() has given up is released by it.
    const isGivenUp = lease.loss !== undefined && grants?.refused.aborted === true;
    if (!isGivenUp) await disposeHeld(lease, accessTo(backend), disposal);
    if (failure !== undefined) {
      reportLeadError(failure.error, key, "term", onError);
      return "after a failure";
    }
    return lease.loss === undefined ? "after others" : "at once";
  };

  /** Whether somebody else leads. Then the store can be reached, and need not be asked often. */
  let isFollower = false;
  let isTold = false;
  /** How to go on after a failed campaign; `undefined` if `lead()` is over. */
  const afterFailure = (error: unknown): Next | undefined => {
    const code = (error as Partial<LockError> | undefined)?.code;
    if (code === "Aborted") return undefined;
    if (code === "InvalidArgument") throw error;
    isFollower = code === "AcquisitionTimeout";
    // A caller that holds the lock around this very call would wait for it for ever. It is told so once.
    const isVain = isFollower && !isTold && heldAround(origin, claimsOf({ key })) !== undefined;
    if (isVain) isTold = true;
    if (!isFollower || isVain) reportLeadError(error, key, "campaign", onError);
    return isFollower ? "at once" : "after a failure";
  };

  const campaignAndServe = async (): Promise<Next | undefined> => {
    try {
      const held = await campaign(isFollower ? FOLLOWING : CAMPAIGNING);
      isFollower = false;
      return await serve(held);
    } catch (error) {
      return afterFailure(error);
    }
  };

  // Neither a wait nor heartbeats keep the process alive for a function that only waits for its signal, so this timer does.
  const alive = keepAlive(() => undefined, LONGEST_TIMER_MS);
  try {
    for (let failures = 0; ends?.isAborted() !== true;) {
      const next = await campaignAndServe();
      if (next === undefined) return;
      failures = next === "after a failure" ? failures + 1 : 0;
      if (next === "at once") continue;
      await pause(clock, delayMs(CAMPAIGNING, Math.max(failures - 1, 0), Math.random()), ends);
    }
  } finally {
    clearInterval(alive);
    ends?.stop();
  }
}

/** Checks the options of `lead()`. */
function readOptions(optionsOrNull: LeadOptions | null | undefined) {
  const options = optionsOrNull ?? {};
  checkObject(options, "options");
  refuseUnknown(options, OPTIONS);
  const { autoExtend, onError: onErrorOrNull } = options;
  const holding = readHolding({ ...options, autoExtend: autoExtend ?? true });
  if (holding.autoExtend === undefined) {
    throw invalid("autoExtend must not be false: leaders extend locks");
  }
  const onError = onErrorOrNull ?? undefined;
  if (onError !== undefined) checkFunction(onError, "onError");
  return { holding: { ...holding, leads: true }, signal: holding.signal, onError };
}

/** Makes the argument of the function that leads. */
function leadershipOf<C extends BackendCapabilities>(
  key: string,
  signal: AbortSignal,
  handle: AcquireOk<C>,
  lease: Lease,
): Leadership<C> {
  const { fence } = handle as Partial<AcquireOk<FencingCapabilities>>;
  const term = fence === undefined ? {} : { term: Number(fence), fence };
  const assertHeld = (): void => lease.assertHeld();
  const leadership = { key, signal, assertHeld, ...term, ...lease.membersOfStore() };
  return Object.assign(new Refusals(), leadership) as unknown as Leadership<C>;
}

/** Whether the function has thrown this because its signal was aborted. */
function isAnswerTo(signal: AbortSignal, error: unknown): boolean {
  const reasons = [error, memberOf(error, "cause")];
  const isAbort = memberOf(error, "name") === "AbortError";
  return signal.aborted && (reasons.includes(signal.reason) || isAbort);
}

/** Waits for `ms` milliseconds, or until `ends` says that `lead()` is over. */
async function pause(clock: Clock, ms: number, ends: Cancellation | undefined): Promise<void> {
  let timer: Timer | undefined;
  const due = new Promise<void>((resolve) => {
    timer = clock.setTimeout(resolve, ms);
  });
  await (ends?.race(due) ?? due);
  clock.clearTimeout(timer);
}
