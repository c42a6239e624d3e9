/** Waits for a lock, on any backend: the core waits for those of this package, and a loop in JavaScript for all others. */

import { addContext, LockError } from "../native/errors.js";
import { core } from "../native/provided.js";
import { readSignal } from "../native/signal.js";
import { beginWait, Policy, type Wait } from "../native/wait.js";
import { type OptionNames, optionNames, WAITING } from "../options/names.js";
import { checkObject } from "../options/validation.js";
import type { Heartbeats } from "./auto-extend.js";
import { type Cancellation, CANCELLED, watchSignals } from "./cancellation.js";
import { INSIDE, isInside, warnOfInside } from "./chain.js";
import { keep } from "./keeping.js";
import { type Known, knownOf } from "./known.js";
import type { Observation } from "./observation.js";
import { askUntilHeld, type Locked } from "./polling.js";
import { releaseInBackground } from "./release.js";
import type {
  AcquireOk,
  AcquireResult,
  AcquisitionOptions,
  BackendCapabilities,
  LockBackend,
  LockBackendLike,
  OnReleaseError,
} from "./types.js";

/** What to acquire and how to wait, as the caller gave it: `null` counts as not given. */
export type AcquisitionRequest = {
  key: string;
  ttlMs: number;
  owner?: string | undefined;
  signal: AbortSignal | undefined;
  /** How the lock extends itself, if it does; checked. */
  autoExtend?: Heartbeats | undefined;
  acquisition: AcquisitionOptions | undefined;
  /** What `acquisition` does not say. */
  defaults: Policy;
  /** What becomes of members of `acquisition` that are no options. */
  onUnknown: (given: object, names: OptionNames) => void;
  /** Hears of the release of a lock that was granted too late. */
  onReleaseError: OnReleaseError | undefined;
};

type AcquireArguments = Parameters<LockBackend["acquire"]>[0] & {
  owner?: string;
  autoExtend?: Heartbeats;
};

const OPTIONS = optionNames("acquisition", [...WAITING, "signal"]);

/** Resolves with the backend's own result once the lock is held. */
export async function acquireUntilHeld<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  request: AcquisitionRequest,
): Promise<AcquireOk<C>> {
  const acquisition = request.acquisition ?? undefined;
  const user = readSignal(request.signal);
  let acquisitionSignal: AbortSignal | undefined;
  if (acquisition !== undefined) {
    checkObject(acquisition, "acquisition");
    request.onUnknown(acquisition, OPTIONS);
    acquisitionSignal = readSignal(acquisition.signal, "acquisition.signal");
  }
  const known = knownOf(backend);
  // A backend that does not check keys may not normalise them either, and two spellings of a key are one lock.
  const key = known.isOurs ? request.key : core.normalizeAndValidateKey(request.key);
  const policy = policyOf(acquisition, request.defaults, key);

  const wait = beginWait(policy, known.clock.now());
  const cancellation = watchSignals(user, acquisitionSignal, key);
  try {
    cancellation?.check();
    const { ttlMs, owner, autoExtend } = request;
    const args: AcquireArguments = { key, ttlMs, signal: cancellation?.signal };
    if (owner !== undefined) args.owner = owner;
    if (autoExtend !== undefined && known.extends) args.autoExtend = autoExtend;
    // Whoever has put another method in the place of `acquire` wants it to be called.
    const take = backend.acquire === known.acquire ? known.take : undefined;
    let held: AcquireOk<C>;
    if (take !== undefined && known.isOurs) {
      if (policy.waits && isInside(known, key)) warnOfInside();
      held = (await take(args, wait)) as AcquireOk<C>;
      if (cancellation?.isAborted() === true) {
        // It was granted before, and wrappers have passed it on meanwhile.
        releaseInBackground(backend, held.lockId, key, request.onReleaseError);
        throw cancellation.error();
      }
    } else {
      const ask = () => (take === undefined ? backend.acquire(args) : take(args, wait));
      held = await askUntilHeld<AcquireOk<C>>({
        key,
        clock: known.clock,
        wait,
        cancellation,
        ask: () => attempt(backend, known, ask, { ...request, key }, cancellation),
        onLocked: () => {
          if (isInside(known, key)) warnOfInside();
        },
      });
    }
    tell(known, key, wait, { result: "ok", lockId: held.lockId });
    return held;
  } catch (thrown) {
    const error = explain(thrown, known, key, cancellation);
    tell(known, key, wait, { result: "fail", error });
    throw error;
  } finally {
    cancellation?.stop();
  }
}

/** What to fail with: after an abort, that; and of one that has waited in vain for itself, that it did so. */
function explain(
  error: unknown,
  known: Known,
  key: string,
  cancellation: Cancellation | undefined,
): unknown {
  if (cancellation?.isAborted() === true) return cancellation.error();
  const isLate = error instanceof LockError && error.code === "AcquisitionTimeout";
  if (isLate && isInside(known, key)) {
    return new LockError(error.code, error.message + INSIDE, { key });
  }
  return addContext(error, key);
}

/** Tells how a wait has ended. Where the core has waited, nobody has told of the attempts, so that this stands for them. */
function tell(
  { waited, isOurs, clock }: Known,
  key: string,
  { startMs, attempts, contended, wakeups, lastMs }: Wait,
  outcome: Pick<Observation, "result" | "lockId" | "error">,
): void {
  if (waited === undefined) return;
  const report = { key, waitMs: clock.now() - startMs, attempts, wakeups, ...outcome };
  if (isOurs && attempts > 0) {
    const { error, ...other } = report;
    const isLocked = error instanceof LockError && error.code === "AcquisitionTimeout";
    waited({
      ...other,
      ...(isLocked ? { reason: "locked" } : { error }),
      type: "acquire",
      durationMs: lastMs,
      contended,
    });
  }
  waited({ ...report, type: "wait" });
}

/** Tries once. If the lock is granted after the cancellation, it is released. */
async function attempt<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  known: Known,
  ask: () => Promise<AcquireResult<C>>,
  { key, ttlMs, autoExtend, onReleaseError }: AcquisitionRequest,
  cancellation: Cancellation | undefined,
): Promise<AcquireOk<C> | Locked> {
  const startedMs = known.clock.elapsed();
  const pending = ask();
  let result: AcquireResult<C>;
  if (cancellation === undefined) {
    result = checkResult(backend, await pending, key);
  } else {
    const first = await cancellation.race(pending);
    if (first === CANCELLED) {
      Promise.resolve(pending).then(
        (late) => {
          if (late?.ok) releaseInBackground(backend, late.lockId, key, onReleaseError);
        },
        () => undefined,
      );
      throw cancellation.error();
    }
    result = checkResult(backend, first, key);
    if (cancellation.signal.aborted) {
      if (result.ok) releaseInBackground(backend, result.lockId, key, onReleaseError);
      throw cancellation.error();
    }
  }
  if (!result.ok) return { ok: false };
  if (autoExtend !== undefined && !known.extends) {
    keep(known.clock, backend, result, key, ttlMs, startedMs, autoExtend);
  }
  return result;
}

/** How to wait, with what is not given from `defaults`. */
function policyOf(
  acquisition: AcquisitionOptions | undefined,
  defaults: Policy,
  key: string,
): Policy {
  if (acquisition === undefined) return defaults;
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

/** The result if it is well-formed, else an error: anyone may have written the backend. */
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
