/** What this package knows of a backend beside its methods. */

import type { LockError } from "../native/errors.js";
import type { Wait } from "../native/wait.js";
import { type Clock, systemClock } from "./clock.js";
import type { Grants } from "./grants.js";
import type { Observer } from "./observation.js";
import type { AcquireResult, BackendCapabilities, LockBackend } from "./types.js";

/** Takes a lock as `acquire` does. With a `wait`, it waits as that says, if {@link Known.isOurs}, and else is one attempt of it. */
export type Take = (
  opts: Parameters<LockBackend["acquire"]>[0],
  wait?: Wait,
) => Promise<AcquireResult<BackendCapabilities>>;

/** Wrappers share everything but the flags and `acquire` with the backend that they wrap. */
export type Known = {
  /** Stands for the backend and its wrappers. */
  readonly origin: object;
  readonly clock: Clock;
  /** Whether it is one of this package: then it checks keys, and waits, itself. */
  readonly isOurs: boolean;
  /** Whether its `acquire` takes `autoExtend`. The locks of others have to be extended from outside. */
  readonly extends: boolean;
  /** Whether it reports what it is asked: see `withTelemetry()`. */
  readonly reports: boolean;
  /** Its own `acquire`, and what it does. */
  readonly acquire: unknown;
  readonly take: Take | undefined;
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
      origin: backend,
      clock: systemClock,
      isOurs: false,
      extends: false,
      reports: false,
      acquire: undefined,
      take: undefined,
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
