/** Waits for a lock, on any backend. The core decides when to try again; the loop is here. */

import { core } from "../native/provided.js";
import { addContext, LockError } from "../native/errors.js";
import { readSignal } from "../native/signal.js";
import { checkObject, invalid } from "../options/validation.js";
import { type OptionNames, optionNames, WAITING } from "../options/names.js";
import { type Attempt, attachAttempt } from "./attempt.js";
import type { Heartbeats } from "./auto-extend.js";
import { type Cancellation, CANCELLED, watchSignals } from "./cancellation.js";
import { INSIDE, isInside, warnOfInside } from "./chain.js";
import type { Clock } from "./clock.js";
import { TIME_TOLERANCE_MS, type WaitingDefaults } from "./defaults.js";
import { keep } from "./keeping.js";
import { type Known, knownOf } from "./known.js";
import type { Observation } from "./observation.js";
import { releaseInBackground } from "./release.js";
import { Queue, type Waiting } from "./turns.js";
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
  defaults: WaitingDefaults;
  /** What becomes of members of `acquisition` that are no options. */
  onUnknown: (given: object, names: OptionNames) => void;
  /** Hears of the release of a lock that was granted too late. */
  onReleaseError: OnReleaseError | undefined;
};

type AcquireArguments = Parameters<LockBackend["acquire"]>[0] & {
  owner?: string;
  autoExtend?: Heartbeats;
};
type RetryState = ReturnType<typeof core.createRetryState>;

const OPTIONS = optionNames("acquisition", [...WAITING, "signal"]);

/** What an attempt has shown that gave no lock. */
type NotYet = {
  readonly ok: false;
  /** `null`: somebody holds the lock. */
  readonly failure: LockError | null;
  /** When it ends by itself, if that is known. */
  readonly freeInMs: number | undefined;
};

/**
 * Resolves with the backend's own result once the lock is held.
 *
 * Math.random is taken from the global object at each use, as users' tests may replace it.
 */
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
    checkWait(acquisition.wait);
  }
  const known = knownOf(backend);
  // A backend that does not check keys may not normalise them either, and two spellings of a key are one lock.
  const key = known.checksKeys ? request.key : core.normalizeAndValidateKey(request.key);

  const cancellation = watchSignals(user, acquisitionSignal, key);
  let waiter: Waiter<C> | undefined;
  try {
    waiter = new Waiter(backend, { ...request, key }, acquisition, cancellation);
    const held = await acquireInTurn(waiter, known, key, request.ttlMs, cancellation);
    known.waited?.({ ...waiter.report(), result: "ok", lockId: held.lockId });
    return held;
  } catch (error) {
    if (waiter !== undefined) known.waited?.({ ...waiter.report(), result: "fail", error });
    throw error;
  } finally {
    cancellation?.stop();
  }
}

/** Waits for the turn, if anybody waits already, and then for the lock. */
async function acquireInTurn<C extends BackendCapabilities>(
  waiter: Waiter<C>,
  known: Known,
  key: string,
  ttlMs: number,
  cancellation: Cancellation | undefined,
): Promise<AcquireOk<C>> {
  cancellation?.check();
  // Whoever does not wait does not queue either.
  if (!waiter.waits) return await waiter.acquire(undefined);
  const { queue, isFirst } = Queue.join(known, key);
  if (!isFirst) {
    waiter.warnIfInside();
    if (!(await queue.turn(waiter, cancellation))) waiter.giveUp(queue.failure);
    waiter.look();
  }
  let takenUntilMs: number | undefined;
  try {
    const held = await waiter.acquire(queue);
    takenUntilMs = known.clock.now() + ttlMs + TIME_TOLERANCE_MS;
    return held;
  } finally {
    queue.leave(takenUntilMs);
  }
}

/** One who wants a lock. */
class Waiter<C extends BackendCapabilities> implements Waiting {
  /** Whether it waits, and does not only try once. */
  readonly waits: boolean;
  /** When its time is over, by the clock. */
  readonly endMs: number;
  readonly startMs: number;
  readonly listens: boolean;
  readonly policy: WaitingDefaults;
  private readonly clock: Clock;
  private elapsedMs = 0;
  private attempts = 0;
  private wakeups = 0;
  /** Most locks are granted at the first attempt with the default options: these need no state in the core. */
  private retry: RetryState | undefined;
  /** The last failure that was more than an attempt cut short by its time limit. */
  private failure: LockError | undefined;

  constructor(
    private readonly backend: LockBackendLike<C>,
    private readonly request: AcquisitionRequest,
    acquisition: AcquisitionOptions | undefined,
    private readonly cancellation: Cancellation | undefined,
  ) {
    this.clock = knownOf(backend).clock;
    this.startMs = this.clock.now();
    this.policy = request.defaults;
    if (acquisition !== undefined && differsFromDefaults(acquisition)) {
      this.policy = policyOf(acquisition, request.defaults);
      this.retry = createRetryState(this.policy, request.key);
    }
    const { maxRetries, timeoutMs } = this.policy;
    this.waits = timeoutMs > 0 && maxRetries > 0;
    this.endMs = this.startMs + timeoutMs;
    this.listens = acquisition?.wait !== "poll";
  }

  /** Asks until the lock is granted. The caller is the first in `queue`; without one, it asks once. */
  async acquire(queue: Queue | undefined): Promise<AcquireOk<C>> {
    const takenUntilMs = queue?.takenUntilMs;
    let isHinted = false;
    let found: AcquireOk<C> | NotYet =
      takenUntilMs === undefined
        ? await this.ask(queue)
        : // Whoever was first before has it, so there is no need to ask.
          { ok: false, failure: null, freeInMs: takenUntilMs - this.clock.now() };
    while (!found.ok) {
      const { failure, freeInMs } = found;
      const delayMs = this.decide(failure, isHinted);
      if (queue !== undefined) {
        queue.failure = failure;
        if (failure === null) this.warnIfInside();
        const end = await queue.pause(delayMs, freeInMs, this.listens, this.cancellation);
        isHinted = end !== "retry";
        if (end === "freed") this.wakeups += 1;
        this.cancellation?.check();
        this.look();
      }
      found = await this.ask(queue);
    }
    return found;
  }

  /** Tells developers at once of a wait that is in vain. Somebody else holds the lock, so this costs no grant any time. */
  warnIfInside(): void {
    if (isInside(knownOf(this.backend), this.request.key)) warnOfInside();
  }

  /** Throws the error of one whose time is over before its turn. `failure`: how the store last failed for the first. */
  giveUp(failure: LockError | null): never {
    this.decide(failure, false);
    throw new LockError("Internal", "a wait has ended early", { key: this.request.key });
  }

  /** What is told of its waiting. */
  report(): Pick<Observation, "type" | "key" | "waitMs" | "attempts" | "wakeups"> {
    const { attempts, wakeups } = this;
    const waitMs = this.clock.now() - this.startMs;
    return { type: "wait", key: this.request.key, waitMs, attempts, wakeups };
  }

  /** Looks at the clock. */
  look(): void {
    this.elapsedMs = this.clock.now() - this.startMs;
  }

  private async ask(queue: Queue | undefined): Promise<AcquireOk<C> | NotYet> {
    if (this.elapsedMs > 0) this.retry ??= createRetryState(this.policy, this.request.key);
    const limitMs = this.retry?.attemptTimeoutMs(this.elapsedMs) ?? this.policy.timeoutMs;
    this.attempts += 1;
    const { startMs, attempts, wakeups } = this;
    const behind = queue?.asks();
    const one: Attempt = { limitMs, behind, startMs, attempts, wakeups, freeInMs: undefined };
    try {
      const attemptMs = this.clock.elapsed();
      const result = await attempt(this.backend, this.request, this.cancellation, one);
      if (!result.ok) {
        queue?.foundTaken();
        return { ok: false, failure: null, freeInMs: one.freeInMs };
      }
      const { key, ttlMs, autoExtend } = this.request;
      if (autoExtend !== undefined && !knownOf(this.backend).extends) {
        keep(this.clock, this.backend, result, key, ttlMs, attemptMs, autoExtend);
      }
      return result;
    } catch (error) {
      this.cancellation?.check();
      const failure = toLockError(error, this.request.key);
      return { ok: false, failure, freeInMs: undefined };
    }
  }

  /** How long to wait until the next retry; throws if there is none. */
  private decide(failure: LockError | null, isHinted: boolean): number {
    const { key } = this.request;
    this.look();
    const { elapsedMs } = this;
    const retry = (this.retry ??= createRetryState(this.policy, key));
    if (failure !== null && (this.failure === undefined || !retry.isCut(failure.code, elapsedMs))) {
      this.failure = failure;
    }
    let decision: number | string;
    try {
      decision = retry.after(failure && failure.code, elapsedMs, Math.random(), isHinted);
    } catch (error) {
      if (error instanceof LockError && isInside(knownOf(this.backend), key)) {
        throw new LockError(error.code, error.message + INSIDE, { key });
      }
      throw addContext(error, key);
    }
    if (typeof decision === "number") return decision;
    // The core gives up because the store failed.
    const last = this.failure;
    if (last === undefined) throw new LockError("Internal", "no attempt has failed", { key });
    if (decision === "") throw last;
    const { code, message, context, cause } = last;
    throw new LockError(code, decision + message, { key, ...context, cause });
  }
}

/** Tries once. If the lock is granted after the cancellation, it is released. */
async function attempt<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  { key, ttlMs, owner, autoExtend, onReleaseError }: AcquisitionRequest,
  cancellation: Cancellation | undefined,
  one: Attempt,
): Promise<AcquireResult<C>> {
  const args: AcquireArguments = { key, ttlMs, signal: cancellation?.signal };
  if (owner !== undefined) args.owner = owner;
  if (autoExtend !== undefined && knownOf(backend).extends) args.autoExtend = autoExtend;
  attachAttempt(args, one);
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

/** How to wait, with what is not given from `defaults`. */
function policyOf(acquisition: AcquisitionOptions, defaults: WaitingDefaults): WaitingDefaults {
  return {
    maxRetries: acquisition.maxRetries ?? defaults.maxRetries,
    retryDelayMs: acquisition.retryDelayMs ?? defaults.retryDelayMs,
    maxRetryDelayMs: acquisition.maxRetryDelayMs ?? defaults.maxRetryDelayMs,
    backoff: acquisition.backoff ?? defaults.backoff,
    jitter: acquisition.jitter ?? defaults.jitter,
    timeoutMs: acquisition.timeoutMs ?? defaults.timeoutMs,
  };
}

function createRetryState(policy: WaitingDefaults, key: string): RetryState {
  for (const name of ["maxRetries", "retryDelayMs", "maxRetryDelayMs", "timeoutMs"] as const) {
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

function checkWait(wait: unknown): void {
  if (wait !== undefined && wait !== null && wait !== "notify" && wait !== "poll") {
    throw invalid('wait must be "notify" or "poll"');
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
