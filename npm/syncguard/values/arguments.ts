/**
 * Checks the arguments that all backends share. These checks come before anything starts, so wrong arguments are refused in the same
 * turn of the event loop.
 */

import type { GivenLabels, LockLabels } from "../native/outcome.js";
import { constants } from "../native/constants.js";
import { checkAborted, readSignal } from "../native/signal.js";
import { checkFunction, invalid } from "../options/validation.js";
import { BACKEND_DEFAULTS, MAX_KEY_LENGTH_BYTES } from "./defaults.js";
import type { BackendCapabilities, LockBackendLike, OnLost, OnReleaseError } from "./types.js";
import { checkText, normalizeAndValidateKey } from "./values.js";

const { maxTtlMs, maxLabelBytes } = constants;

/** Checks that an operation was given an object of arguments. */
export function given<Options extends object>(opts: Options): Options {
  if (typeof opts !== "object" || opts === null) {
    throw invalid("the operation needs an options object");
  }
  return opts;
}

/** The signal of an operation that is about to start, if there is one. */
export function startingSignal(opts: {
  signal?: AbortSignal | undefined;
}): AbortSignal | undefined {
  const signal = readSignal(opts.signal);
  checkAborted(signal);
  return signal;
}

/** The names of the labels that are stored with a lock. */
export const LABELS: readonly (keyof LockLabels)[] = constants.labelNames;

/** The labels as members of a list of options. */
export const LABEL_OPTIONS = Object.fromEntries(LABELS.map((name) => [name, true])) as Readonly<
  Record<keyof LockLabels, true>
>;

/** A key of so few code units is short enough in any case, because NFC makes at most nine bytes of UTF-8 of each. */
const SURELY_SHORT = Math.floor(MAX_KEY_LENGTH_BYTES / 9);

/**
 * Accepts the usual keys without a copy.
 *
 * @throws LockError `InvalidArgument`
 */
export function checkKey(key: unknown): asserts key is string {
  if (typeof key === "string" && key !== "" && key.isWellFormed()) {
    if (key.length <= SURELY_SHORT) return;
    // A key with as many bytes as code units is ASCII, which NFC does not change.
    if (key.length <= MAX_KEY_LENGTH_BYTES && Buffer.byteLength(key) === key.length) return;
  }
  normalizeAndValidateKey(key as string);
}

/** @throws LockError `InvalidArgument` */
export function checkTtl(ttlMs: unknown): asserts ttlMs is number {
  if (!Number.isInteger(ttlMs) || (ttlMs as number) < 1) {
    throw invalid("ttlMs must be a positive integer");
  }
  if ((ttlMs as number) > maxTtlMs) throw invalid(`ttlMs must not exceed ${maxTtlMs}`);
  checkNoTime(ttlMs as number, "ttlMs");
}

/** A TTL within a year of the present time in milliseconds was meant as a time, unless it is shorter than a year itself. */
const YEAR_MS = 31_557_600_000;

/**
 * Refuses a TTL that can only be the time when the lock is to end.
 *
 * @param name - what the user calls it
 * @throws LockError `InvalidArgument`
 */
export function checkNoTime(ttlMs: number, name: string): void {
  // A test may have set the clock to 0.
  if (ttlMs > YEAR_MS && Math.abs(ttlMs - Date.now()) < YEAR_MS) {
    throw invalid(
      `${name} is how long the lock lasts, and not when it ends: give 30_000 for 30 seconds`,
    );
  }
}

/** A shorter TTL was perhaps meant in seconds. */
const SURELY_MILLISECONDS = 1_000;
let hasWarned = false;

/** As {@link checkTtl}, for a lock that is to be taken. Warns once of a TTL that may be in seconds, but not in production or tests. */
export function checkTtlOfLock(ttlMs: unknown): asserts ttlMs is number {
  checkTtl(ttlMs);
  if (ttlMs >= SURELY_MILLISECONDS || hasWarned) return;
  const { NODE_ENV } = process.env;
  if (NODE_ENV === "production" || NODE_ENV === "test") return;
  hasWarned = true;
  process.emitWarning(
    `ttlMs is ${ttlMs}: others can take the lock ${ttlMs} milliseconds after it was taken. Were seconds meant?`,
    { type: "SyncGuardWarning", code: "SYNCGUARD_SHORT_TTL" },
  );
}

/** The labels that were given, if any; `null` is for one that is not to be stored. */
export function readLabels(options: LockLabels): GivenLabels | undefined {
  let labels: GivenLabels | undefined;
  for (const name of LABELS) {
    const text = options[name];
    if (text === undefined) continue;
    if (text !== null) checkLabel(name, text);
    labels ??= {};
    labels[name] = text;
  }
  return labels;
}

function checkLabel(name: string, text: string): void {
  checkText(text, name);
  if (text === "") throw invalid(`${name} must not be empty`);
  if (Buffer.byteLength(text) > maxLabelBytes) {
    throw invalid(`${name} exceeds maximum length of ${maxLabelBytes} bytes`);
  }
}

/** The TTL to use: the default if none is given. */
export function resolveTtl(ttlMs: number | null | undefined): number {
  if (ttlMs === undefined || ttlMs === null) return BACKEND_DEFAULTS.ttlMs;
  checkTtlOfLock(ttlMs);
  return ttlMs;
}

/** For how long the lock is to be held at least: 0 if that was not given. */
export function readMinHold(minHoldMs: number | null | undefined, ttlMs: number): number {
  if (minHoldMs === undefined || minHoldMs === null) return 0;
  if (!Number.isInteger(minHoldMs) || minHoldMs < 1) {
    throw invalid("minHoldMs must be a positive integer");
  }
  // A holder that dies before its release holds the lock only for the TTL.
  if (minHoldMs > ttlMs) throw invalid("minHoldMs must not be longer than ttlMs");
  return minHoldMs;
}

/** How a handle is disposed of, and who hears of what it cannot throw. */
export type DisposalOptions = {
  readonly onReleaseError?: OnReleaseError | undefined;
  readonly onLost?: OnLost | undefined;
  readonly disposeTimeoutMs?: number | undefined;
};

/** Refuses options that handles cannot use. */
export function checkDisposal({ onReleaseError, onLost, disposeTimeoutMs }: DisposalOptions): void {
  if (onReleaseError !== undefined) checkFunction(onReleaseError, "onReleaseError");
  if (onLost !== undefined) checkFunction(onLost, "onLost");
  if (
    disposeTimeoutMs !== undefined &&
    (typeof disposeTimeoutMs !== "number" || !(disposeTimeoutMs > 0))
  ) {
    throw invalid("disposeTimeoutMs must be a positive number");
  }
}

/** Refuses objects without the methods of a backend. */
export function checkBackend<C extends BackendCapabilities>(backend: LockBackendLike<C>): void {
  const candidate = backend as Partial<LockBackendLike<C>> | null | undefined;
  if (typeof candidate?.acquire !== "function" || typeof candidate.release !== "function") {
    throw invalid("backend must be a LockBackend");
  }
}
