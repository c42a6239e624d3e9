/** The options that say how a lock is held, in whichever function they are given. */

import type { LockLabels, StoredLabels } from "../native/outcome.js";
import { readSignal } from "../native/signal.js";
import { checkBooleans } from "../options/validation.js";
import { type DisposalOptions, readLabels, readMinHold, resolveTtl } from "../values/arguments.js";
import { type HeartbeatOptions, readAutoExtend } from "../values/auto-extend.js";
import type {
  BackendLockOptions,
  LockConfig,
  OnceOptions,
  TryLockOptions,
} from "../values/types.js";
import { readDisposal } from "./handle.js";
import type { AcquireArguments } from "./internals.js";

/** What is to be taken, how it is waited for, and for which period: other functions read these. */
type ReadElsewhere = "key" | "slots" | "acquisition" | "due" | "allowAhead";

/** All of them. A function that takes only some has refused the others. */
export type HoldingOptions = Omit<
  LockConfig & BackendLockOptions & TryLockOptions & OnceOptions,
  ReadElsewhere
>;

/** What becomes of those that have other types then. */
type Read = DisposalOptions & {
  ttlMs: number;
  signal: AbortSignal | undefined;
  autoExtend: HeartbeatOptions | undefined;
  minHoldMs: number;
  throwIfLost: boolean;
};

/** What they say, with the defaults: a member for each, so that TypeScript finds an option that is not read. */
export type Holding = {
  readonly [Name in Exclude<keyof HoldingOptions, keyof LockLabels>]-?: Name extends keyof Read
    ? Read[Name]
    : never;
} & { readonly labels: StoredLabels | undefined };

/**
 * Reads them; `null` counts as not given.
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

/** What `acquire()` of a backend of this package is given for that. */
export function argumentsOf(key: string, holding: Holding): AcquireArguments {
  const { ttlMs, signal, autoExtend, labels } = holding;
  return { key, ttlMs, signal, autoExtend, ...labels };
}
