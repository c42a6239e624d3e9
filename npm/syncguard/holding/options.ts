/** Reads the options that say how a lock is held, for all functions that take some of them. */

import type { GivenLabels, LockLabels } from "../native/outcome.js";
import { readSignal } from "../native/signal.js";
import { checkBooleans } from "../options/validation.js";
import { type DisposalOptions, readLabels, readMinHold, resolveTtl } from "../values/arguments.js";
import { type HeartbeatOptions, readAutoExtend } from "../values/auto-extend.js";
import type { BesideKey } from "../values/claims.js";
import type {
  BackendLockOptions,
  LockConfig,
  OnceOptions,
  TryLockOptions,
} from "../values/types.js";
import { readDisposal } from "./handle.js";
import type { AcquireArguments } from "./internals.js";

/** Options that say something else: what to take, how to wait, and for which period. Other functions read them. */
type ReadElsewhere = "key" | keyof BesideKey | "acquisition" | "due" | "allowAhead";

/** All options of holding. A function that takes only some of them has refused the others before. */
export type HoldingOptions = Omit<
  LockConfig & BackendLockOptions & TryLockOptions & OnceOptions,
  ReadElsewhere
>;

/** The types of those options that change when they are read. */
type Read = DisposalOptions & {
  ttlMs: number;
  signal: AbortSignal | undefined;
  autoExtend: HeartbeatOptions | undefined;
  minHoldMs: number;
  throwIfLost: boolean;
};

/** The options as they are read, with defaults. It has a member for each, so that TypeScript finds an option that nobody reads. */
export type Holding = {
  readonly [Name in Exclude<keyof HoldingOptions, keyof LockLabels>]-?: Name extends keyof Read
    ? Read[Name]
    : never;
} & { readonly labels: GivenLabels | undefined };

/**
 * Reads the options; `null` counts as not given, except for labels.
 *
 * @throws LockError `InvalidArgument` that names the option
 */
export function readHolding(options: HoldingOptions): Holding {
  const throwIfLost = options.throwIfLost ?? false;
  checkBooleans({ throwIfLost });
  const ttlMs = resolveTtl(options.ttlMs);
  const { onReleaseError, onLost, disposeTimeoutMs } = readDisposal(options);
  return {
    ttlMs,
    labels: readLabels(options),
    signal: readSignal(options.signal),
    autoExtend: readAutoExtend(options.autoExtend, ttlMs),
    minHoldMs: readMinHold(options.minHoldMs, ttlMs),
    throwIfLost,
    onReleaseError,
    onLost,
    disposeTimeoutMs,
  };
}

/** The argument of `acquire()` for a lock that is held so. */
export function argumentsOf(key: string, holding: Holding): AcquireArguments {
  const { ttlMs, signal, autoExtend, labels } = holding;
  return { key, ttlMs, signal, autoExtend, ...labels };
}
