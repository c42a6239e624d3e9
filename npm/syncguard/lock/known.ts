/** What this package knows of a backend beside its methods. */

import type { LockError } from "../native/errors.js";
import type { Watch } from "../native/outcome.js";
import { ShortLivedMap } from "../native/short-lived-map.js";
import { type Clock, systemClock } from "./clock.js";
import type { Grants } from "./grants.js";
import type { Observer } from "./observation.js";
import type { Queue } from "./turns.js";

/** Wrappers share everything but the flags with the backend that they wrap. */
export type Known = {
  readonly clock: Clock;
  /** Whether the store checks keys itself. */
  readonly checksKeys: boolean;
  /** Whether its `acquire` takes `autoExtend`. The locks of others have to be extended from outside. */
  readonly extends: boolean;
  /** Whether it reports what it is asked: see `withTelemetry()`. */
  readonly reports: boolean;
  /** How much later than this process others hear of its releases, in milliseconds. */
  readonly othersLagMs: number;
  /** Calls `onFreed` when the lock may have been freed; `undefined` if the store cannot tell. */
  readonly watch: ((key: string, onFreed: () => void) => Watch | undefined) | undefined;
  /** Those who wait for its locks, by key. */
  readonly queues: ShortLivedMap<string, Queue>;
  /** Runs the work of `lock()`, and its release, so that one can see what the lock is held for. */
  readonly runHeld:
    | (<T>(key: string, work: () => Promise<T>, loss: () => LockError | undefined) => Promise<T>)
    | undefined;
  /** Hears how each wait of `lock()` has ended. */
  readonly waited: Observer | undefined;
  /** The locks that it has granted, if it is one of this package. */
  readonly grants: Grants | undefined;
};

const known = new WeakMap<object, Known>();

/** What is known of a backend; made for somebody's own when it is first asked for. */
export function knownOf(backend: object): Known {
  let own = known.get(backend);
  if (own === undefined) {
    own = {
      clock: systemClock,
      checksKeys: false,
      extends: false,
      reports: false,
      othersLagMs: 0,
      watch: undefined,
      queues: new ShortLivedMap(),
      runHeld: undefined,
      waited: undefined,
      grants: undefined,
    };
    known.set(backend, own);
  }
  return own;
}

/** What is known of a backend, if anything is. */
export function ifKnown(backend: object): Known | undefined {
  return known.get(backend);
}

/** Notes what is known of a backend. */
export function register<Backend extends object>(backend: Backend, what: Known): Backend {
  known.set(backend, what);
  return backend;
}
