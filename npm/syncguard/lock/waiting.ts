/** Waits for a lock, on any backend. The core decides when to try again; the loop is here. */

import { core } from "../native/core.js";
import { addContext, LockError } from "../native/errors.js";
import { readSignal } from "../native/signal.js";
import { checkObject, invalid } from "../options/validation.js";
import { optionNames, WAITING, warnOfUnknown } from "../options/warnings.js";
import { type Cancellation, CANCELLED, watchSignals } from "./cancellation.js";
import { LOCK_DEFAULTS, mergeAcquisitionConfig } from "./defaults.js";
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
  acquisition: AcquisitionOptions | undefined;
  /** Hears of the release of a lock that was granted too late. */
  onReleaseError: OnReleaseError | undefined;
};

type AcquireArguments = Parameters<LockBackend["acquire"]>[0] & { owner?: string };
type RetryState = ReturnType<typeof core.createRetryState>;

const OPTIONS = optionNames("acquisition", [...WAITING, "signal"]);

/**
 * Resolves with the backend's own result once the lock is held.
 *
 * Date.now, Math.random and setTimeout are taken from the global object at each use: users' fake timers work.
 */
export async function acquireUntilHeld<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  request: AcquisitionRequest,
): Promise<AcquireOk<C>> {
  const acquisition = request.acquisition ?? undefined;
  const user = readSignal(request.signal);
  // Most locks are granted at the first attempt with the default options: these need no state in the core.
  let retry: RetryState | undefined;
  let acquisitionSignal: AbortSignal | undefined;
  if (acquisition !== undefined) {
    checkObject(acquisition, "acquisition");
    warnOfUnknown(acquisition, OPTIONS);
    acquisitionSignal = readSignal(acquisition.signal, "acquisition.signal");
    if (differsFromDefaults(acquisition)) retry = createRetryState(acquisition, request.key);
  }
  // A backend that does not check keys may not normalise them either, and two spellings of a key are one lock.
  const key = checksKeys(backend) ? request.key : core.normalizeAndValidateKey(request.key);

  const cancellation = watchSignals(user, acquisitionSignal, key);
  try {
    cancellation?.check();
    const startMs = Date.now();
    let elapsedMs = 0;
    // The last failure that was more than an attempt cut short by its time limit.
    let remembered: LockError | undefined;
    for (;;) {
      const limitMs =
        retry === undefined ? LOCK_DEFAULTS.timeoutMs : retry.attemptTimeoutMs(elapsedMs);
      let failure: LockError | null = null;
      try {
        const result = await attempt(backend, key, request, cancellation, limitMs);
        if (result.ok) return result;
      } catch (error) {
        cancellation?.check();
        failure = toLockError(error, key);
      }
      retry ??= createRetryState(undefined, key);
      elapsedMs = Date.now() - startMs;
      if (failure !== null && (remembered === undefined || !retry.isCut(failure.code, elapsedMs))) {
        remembered = failure;
      }
      const delayMs = decide(retry, failure, remembered, elapsedMs, key);
      if (cancellation === undefined) await sleep(delayMs);
      else await cancellation.sleep(delayMs);
      cancellation?.check();
      elapsedMs = Date.now() - startMs;
    }
  } finally {
    cancellation?.stop();
  }
}

/** Tries once. If the lock is granted after the cancellation, it is released. */
async function attempt<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  key: string,
  { ttlMs, owner, onReleaseError }: AcquisitionRequest,
  cancellation: Cancellation | undefined,
  limitMs: number,
): Promise<AcquireResult<C>> {
  const args: AcquireArguments = { key, ttlMs, signal: cancellation?.signal };
  if (owner !== undefined) args.owner = owner;
  limitAttempt(args, limitMs);
  const pending = backend.acquire(args);
  if (cancellation === undefined) return checkResult(backend, await pending, key);

  const first = await cancellation.race(pending);
  if (first !== CANCELLED) {
    const result = checkResult(backend, first, key);
    if (!cancellation.signal.aborted) return result;
    if (result.ok) releaseInBackground(backend, result.lockId, key, onReleaseError);
  } else {
    Promise.resolve(pending).then(
      (late) => {
        if (late?.ok) releaseInBackground(backend, late.lockId, key, onReleaseError);
      },
      () => undefined,
    );
  }
  throw cancellation.error();
}

function decide(
  retry: RetryState,
  failure: LockError | null,
  remembered: LockError | undefined,
  elapsedMs: number,
  key: string,
): number {
  let decision: number | string;
  try {
    decision = retry.after(failure && failure.code, elapsedMs, Math.random());
  } catch (error) {
    throw addContext(error, key);
  }
  if (typeof decision === "number") return decision;
  // The core gives up because the store failed.
  if (remembered === undefined) throw new LockError("Internal", "no attempt has failed", { key });
  if (decision === "") throw remembered;
  const { code, message, context, cause } = remembered;
  throw new LockError(code, decision + message, { key, ...context, cause });
}

function createRetryState(acquisition: AcquisitionOptions | undefined, key: string): RetryState {
  const policy = mergeAcquisitionConfig(acquisition);
  for (const name of ["maxRetries", "retryDelayMs", "timeoutMs"] as const) {
    if (typeof policy[name] !== "number") throw invalid(`${name} must be a number`);
  }
  for (const name of ["backoff", "jitter"] as const) {
    if (typeof policy[name] !== "string") throw invalid(`${name} must be a string`);
  }
  try {
    return core.createRetryState(policy);
  } catch (error) {
    throw addContext(error, key);
  }
}

function differsFromDefaults(acquisition: AcquisitionOptions): boolean {
  return WAITING.some((name) => (acquisition[name] ?? undefined) !== undefined);
}

function sleep(delayMs: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, delayMs);
  });
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

/** A backend's failure as a LockError. The message of a foreign error is kept. */
function toLockError(error: unknown, key: string): LockError {
  if (error instanceof LockError) return error;
  const message =
    error instanceof Error
      ? error.message
      : typeof error === "string"
        ? error
        : "the backend failed with something that is no error";
  return new LockError("Internal", message, { key, cause: error });
}

// What lock() and the backends of this package tell each other, hidden from users.

type LimitedAttempt = { readonly "syncguard.attemptTimeoutMs"?: number };

/**
 * Tells the backend how long the attempt may take, in milliseconds, so that it ends in time when the store hangs. Not
 * enumerable: other backends see `{ key, ttlMs, signal }`.
 */
function limitAttempt(args: object, limitMs: number): void {
  Object.defineProperty(args, "syncguard.attemptTimeoutMs", { value: limitMs });
}

/**
 * How long an attempt may take, if `lock()` has set a limit. The property has a string name and not a symbol, because only
 * for string names does V8 cache that most arguments lack it.
 */
export function attemptTimeoutMs(args: object): number | undefined {
  return (args as LimitedAttempt)["syncguard.attemptTimeoutMs"];
}

const checking = new WeakSet();

/** Notes that a backend checks keys itself. */
export function markChecksKeys<Backend extends object>(backend: Backend): Backend {
  checking.add(backend);
  return backend;
}

/** Whether a backend is known to check keys itself. */
export function checksKeys(backend: object): boolean {
  return checking.has(backend);
}
