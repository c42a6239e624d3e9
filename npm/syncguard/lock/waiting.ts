/** Waits for a lock, on any backend: the core waits for those of this package, and a loop in JavaScript for all others. */

import { addContext, LockError } from "../native/errors.js";
import { readSignal } from "../native/signal.js";
import { beginWait, Policy, type Wait } from "../native/wait.js";
import { type OptionNames, optionNames, WAITING } from "../options/names.js";
import { checkObject } from "../options/validation.js";
import type { HeartbeatOptions } from "./auto-extend.js";
import { type Cancellation, CANCELLED, watchSignals } from "./cancellation.js";
import { INSIDE, isInside, warnOfInside } from "./chain.js";
import { systemClock } from "./clock.js";
import type { Observation } from "./events.js";
import { heldIn, type Taken } from "./handle.js";
import { startHeartbeats } from "./heartbeats.js";
import { type Internals, internalsOf, takeOf } from "./internals.js";
import { askUntilHeld, type Locked } from "./polling.js";
import { releaseInBackground } from "./reports.js";
import type {
  AcquireOk,
  AcquireResult,
  AcquisitionOptions,
  BackendCapabilities,
  LockBackend,
  LockBackendLike,
  OnReleaseError,
} from "./types.js";
import { normalizeAndValidateKey } from "./values.js";

/** What to acquire and how to wait, as the caller gave it: `null` counts as not given. */
export type AcquisitionRequest = {
  key: string;
  ttlMs: number;
  owner?: string | undefined;
  signal: AbortSignal | undefined;
  /** How the lock extends itself, if it does; checked. */
  autoExtend?: HeartbeatOptions | undefined;
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
  autoExtend?: HeartbeatOptions;
};

const OPTIONS = optionNames("acquisition", [...WAITING, "signal"]);

/** Resolves once the lock is held: with the backend's own result, if that is a handle. */
export async function acquireUntilHeld<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  request: AcquisitionRequest,
): Promise<Taken<C>> {
  const acquisition = request.acquisition ?? undefined;
  const user = readSignal(request.signal);
  let acquisitionSignal: AbortSignal | undefined;
  if (acquisition !== undefined) {
    checkObject(acquisition, "acquisition");
    request.onUnknown(acquisition, OPTIONS);
    acquisitionSignal = readSignal(acquisition.signal, "acquisition.signal");
  }
  const internals = internalsOf(backend);
  const { clock = systemClock, origin = backend } = internals ?? {};
  const isOurs = internals?.grants !== undefined;
  // A backend that does not check keys may not normalise them either, and two spellings of a key are one lock.
  const key = isOurs ? request.key : normalizeAndValidateKey(request.key);
  const policy = policyOf(acquisition, request.defaults, key);

  const wait = beginWait(policy, clock.now());
  const cancellation = watchSignals(user, acquisitionSignal, key);
  try {
    cancellation?.check();
    const { ttlMs, owner, autoExtend } = request;
    const args: AcquireArguments = { key, ttlMs, signal: cancellation?.signal };
    if (owner !== undefined) args.owner = owner;
    if (autoExtend !== undefined && internals !== undefined) args.autoExtend = autoExtend;
    const take = takeOf(backend);
    let result: AcquireOk<C>;
    let startedMs = 0;
    if (take !== undefined && isOurs) {
      if (policy.waits && isInside(origin, key)) warnOfInside();
      result = (await take(args, wait)) as AcquireOk<C>;
      if (cancellation?.isAborted() === true) {
        // It was granted before, and wrappers have passed it on meanwhile.
        releaseInBackground(backend, result.lockId, key, request.onReleaseError);
        throw cancellation.error();
      }
    } else {
      const ask = async (): Promise<AcquireOk<C> | Locked> => {
        startedMs = clock.elapsed();
        const pending = take === undefined ? backend.acquire(args) : take(args, wait);
        return await attempt(backend, pending, { ...request, key }, cancellation);
      };
      const onLocked = (): void => {
        if (isInside(origin, key)) warnOfInside();
      };
      result = await askUntilHeld<AcquireOk<C>>({ key, clock, wait, cancellation, ask, onLocked });
    }
    const taken = heldIn(backend, result, request.key);
    if (autoExtend !== undefined && internals === undefined) {
      startHeartbeats(backend, taken.handle, taken.lease, ttlMs, startedMs, autoExtend);
    }
    tell(internals, key, wait, { result: "ok", lockId: result.lockId });
    return taken;
  } catch (thrown) {
    const error = explain(thrown, origin, key, cancellation);
    tell(internals, key, wait, { result: "fail", error });
    throw error;
  } finally {
    cancellation?.stop();
  }
}

/** What to fail with: after an abort, that; and of one that has waited in vain for itself, that it did so. */
function explain(
  error: unknown,
  origin: object,
  key: string,
  cancellation: Cancellation | undefined,
): unknown {
  if (cancellation?.isAborted() === true) return cancellation.error();
  const isLate = error instanceof LockError && error.code === "AcquisitionTimeout";
  if (isLate && isInside(origin, key)) {
    return new LockError(error.code, error.message + INSIDE, { key });
  }
  return addContext(error, key);
}

/** Tells how a wait has ended. Where the core has waited, nobody has told of the attempts, so that this stands for them. */
function tell(
  internals: Internals | undefined,
  key: string,
  { startMs, attempts, contended, wakeups, lastMs }: Wait,
  outcome: Pick<Observation, "result" | "lockId" | "error">,
): void {
  if (internals === undefined) return;
  const { stream, clock, grants } = internals;
  if (!stream.hears("wait") && !stream.hears("acquire")) return;
  const report = { key, waitMs: clock.now() - startMs, attempts, wakeups, ...outcome };
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
  { key, onReleaseError }: AcquisitionRequest,
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
  return result.ok ? result : { ok: false };
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
