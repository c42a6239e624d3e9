/** The class of redlock 5, on the backends of this package. */

import { EventEmitter } from "node:events";
import { unheard } from "../holding/grant.js";
import { leaseOf } from "../holding/handle.js";
import type { Fence, HeldLocks, SyncGuardBackend } from "../values/types.js";
import { LockError } from "../native/errors.js";
import { checkFunction } from "../options/validation.js";
import { ExecutionError, ResourceLockedError } from "./errors.js";
import {
  acquisitionOf,
  backendOf,
  checkDuration,
  checkResources,
  checkScripts,
  everyMsOf,
  idsOf,
  onlyClient,
  readSettings,
  repeated,
} from "./settings.js";
import type {
  Client,
  ExecutionResult,
  ExecutionStats,
  RedlockAbortSignal,
  RedlockSettings,
  Settings,
} from "./types.js";
import { EXTENDED, type Extended, extendedOf, keep, type Kept, runHeld } from "./using.js";

/** Programs look for it, so it is that of redlock. */
const NO_QUORUM = "The operation was unable to achieve a quorum during its retry window.";
/** Milliseconds that redlock takes off beside the drift. */
const LEAST_DRIFT_MS = 2;

/** Locks whose loss an event has told. */
const reportedLosses = new WeakSet<Lock>();

/** The routine of `using`. */
type Routine<T> = (signal: RedlockAbortSignal) => Promise<T>;

/**
 * A lock on resources: on all of them, or it would not be there.
 *
 * @example
 * ```ts
 * import Redlock, { Lock } from "syncguard/redlock";
 *
 * // What another process has acquired, and has sent here.
 * function received(redlock: Redlock, resources: string[], value: string): Lock {
 *   return new Lock(redlock, resources, value, [], Date.now() + 5_000);
 * }
 * ```
 */
export class Lock {
  /** Who has acquired it. */
  readonly redlock: Redlock;
  /** What is locked. */
  readonly resources: string[];
  /** Proof of ownership: the lock id; of several resources, their lock ids with commas between. */
  readonly value: string;
  /** How it was acquired. */
  readonly attempts: ReadonlyArray<Promise<ExecutionStats>>;
  /** Until when it is held for certain, in milliseconds since the Unix epoch, by the clock of this machine; 0 once it was released. */
  declare expiration: number;
  /** What redlock does not have: the fencing token of each resource, larger than that of every earlier lock on it. */
  readonly fences: ReadonlyMap<string, Fence>;

  /**
   * A lock that was acquired elsewhere, too: its resources and its value are all that is needed to release it.
   *
   * @param fences - the fencing tokens, if they are known
   */
  constructor(
    redlock: Redlock,
    resources: string[],
    value: string,
    attempts: ReadonlyArray<Promise<ExecutionStats>>,
    expiration: number,
    fences: ReadonlyMap<string, Fence> = new Map(),
  ) {
    this.redlock = redlock;
    this.resources = resources;
    this.value = value;
    this.attempts = attempts;
    // Kept outside of the object: users may freeze it.
    Object.defineProperty(this, "expiration", {
      get: () => expiration,
      set: (value: number) => {
        expiration = value;
      },
      enumerable: true,
      configurable: true,
    });
    this.fences = fences;
  }

  /**
   * Frees the resources: `redlock.release(lock)`.
   *
   * @throws ExecutionError if the lock is gone, or the store has failed
   * @example
   * ```ts
   * import Redlock from "syncguard/redlock";
   *
   * const lock = await new Redlock(["redis://localhost:6379"]).acquire(["report"], 5_000);
   * await lock.release();
   * ```
   */
  async release(): Promise<ExecutionResult> {
    return await this.redlock.release(this);
  }

  /**
   * Makes the lock end `duration` milliseconds from now: `redlock.extend(lock, duration)`.
   *
   * @returns the lock to use from now on
   * @throws ExecutionError if the lock is gone, or the store has failed
   * @example
   * ```ts
   * import Redlock from "syncguard/redlock";
   *
   * let lock = await new Redlock(["redis://localhost:6379"]).acquire(["report"], 5_000);
   * lock = await lock.extend(5_000);
   * ```
   */
  async extend(duration: number): Promise<Lock> {
    return await this.redlock.extend(this, duration);
  }
}

/**
 * The class of redlock 5 on one store: a client of Redis, the URL of any store, or a backend of this package.
 *
 * Its `"error"` events need no listener. Locks of redlock itself have other keys in the store: the two do not exclude each other.
 *
 * @example
 * ```ts
 * import Redlock from "syncguard/redlock";
 *
 * const redlock = new Redlock(["redis://localhost:6379"], { retryCount: 20 });
 * const lock = await redlock.acquire(["account:1", "account:2"], 5_000);
 * try {
 *   console.log("both are locked");
 * } finally {
 *   await lock.release();
 * }
 * ```
 */
export class Redlock extends EventEmitter {
  /** What was given. Only the first is used. */
  readonly clients: Set<Client>;
  /** The settings, with redlock's defaults. */
  readonly settings: Settings;
  readonly #client: Client;
  readonly #backend: SyncGuardBackend;

  /**
   * Connects at the first operation. From a client of Redis the settings are read, and a connection of its own is made, as
   * `createRedisBackend` does.
   *
   * @param clients - one
   * @param settings - those of redlock, and `firstClientOnly`
   * @param scripts - taken for its likeness to redlock: there are no scripts to replace
   * @throws LockError `InvalidArgument` that names the setting; for several clients; for scripts
   */
  constructor(
    clients: Iterable<Client>,
    settings: RedlockSettings = {},
    scripts: Readonly<Record<string, undefined>> = {},
  ) {
    super();
    checkScripts(scripts);
    this.settings = readSettings(settings);
    this.#client = onlyClient(clients, settings);
    this.clients = new Set(clients);
    this.#backend = backendOf(this.#client);
    // Without a listener, an event of that name would end the process.
    this.on("error", () => undefined);
  }

  /**
   * Closes the connection, and calls `quit()` of the client that was given, if it has one.
   *
   * @example
   * ```ts
   * import Redlock from "syncguard/redlock";
   *
   * const redlock = new Redlock(["redis://localhost:6379"]);
   * await redlock.quit();
   * ```
   */
  async quit(): Promise<void> {
    await this.#backend.close();
    const client = this.#client as { quit?: () => Promise<unknown> };
    if (typeof client.quit === "function") await client.quit();
  }

  /**
   * Waits for all resources, and locks them or none.
   *
   * @param resources - their names
   * @param duration - milliseconds after which the lock ends by itself
   * @throws ExecutionError if they are not free within the retries, or the store has failed; LockError `InvalidArgument`
   * @example
   * ```ts
   * import Redlock from "syncguard/redlock";
   *
   * const redlock = new Redlock(["redis://localhost:6379"], { retryCount: 20 });
   * const lock = await redlock.acquire(["account:1", "account:2"], 5_000);
   * console.log(lock.value, new Date(lock.expiration));
   * ```
   */
  async acquire(
    resources: string[],
    duration: number,
    settings: Partial<Settings> = {},
  ): Promise<Lock> {
    checkResources(resources);
    checkDuration(duration);
    const all = readSettings(settings, this.settings);
    const extended = extendedOf(settings);
    let held: HeldLocks;
    try {
      held = await this.#backend.lock(resources, {
        ttlMs: duration,
        autoExtend: extended !== undefined && { everyMs: everyMsOf(all, duration) },
        acquisition: acquisitionOf(all),
        // Of any other, whoever releases it hears that.
        onLost: extended?.onLost ?? unheard,
      });
    } catch (error) {
      throw this.#failed(resources, error);
    }
    extended?.taken.push(held);
    const lastsMs = leaseOf(held)?.leftMs() ?? duration;
    const expiration = Date.now() + lastsMs - driftOf(all, duration);
    return new Lock(this, resources, held.lockIds.join(), this.#agreed(), expiration, held.fences);
  }

  /**
   * Frees the resources of a lock.
   *
   * @param settings - taken for its likeness to redlock: a release is repeated by itself while the store cannot be reached
   * @throws ExecutionError if the lock is gone, or the store has failed: then it ends by itself
   * @example
   * ```ts
   * import Redlock from "syncguard/redlock";
   *
   * const redlock = new Redlock(["redis://localhost:6379"]);
   * const lock = await redlock.acquire(["report"], 5_000);
   * await redlock.release(lock);
   * ```
   */
  async release(lock: Lock, settings: Partial<Settings> = {}): Promise<ExecutionResult> {
    readSettings(settings, this.settings);
    lock.expiration = 0;
    try {
      if (!(await this.#backend.release(idsOf(lock))).ok) throw gone();
    } catch (error) {
      throw this.#failed(lock.resources, error, reportedLosses.has(lock));
    }
    return { attempts: this.#agreed() };
  }

  /**
   * Makes a lock end `duration` milliseconds from now. The lock that was given has no `expiration` afterwards. While the store cannot be
   * reached, it is tried again, as the settings say, until the lock ends.
   *
   * @returns the lock to use from now on
   * @throws ExecutionError if the lock has ended or is gone, or the store has failed; LockError `InvalidArgument`
   * @example
   * ```ts
   * import Redlock from "syncguard/redlock";
   *
   * const redlock = new Redlock(["redis://localhost:6379"]);
   * let lock = await redlock.acquire(["report"], 5_000);
   * lock = await redlock.extend(lock, 10_000);
   * ```
   */
  async extend(existing: Lock, duration: number, settings: Partial<Settings> = {}): Promise<Lock> {
    checkDuration(duration);
    const all = readSettings(settings, this.settings);
    let startedMs = Date.now();
    if (existing.expiration < startedMs) {
      throw new ExecutionError("Cannot extend an already-expired lock.", []);
    }
    const isHeld = (): boolean => Date.now() < existing.expiration;
    try {
      const extended = await repeated(all, isHeld, async () => {
        startedMs = Date.now();
        return await this.#backend.extend({ ...idsOf(existing), ttlMs: duration });
      });
      if (!extended.ok) throw gone();
    } catch (error) {
      throw this.#failed(existing.resources, error);
    }
    existing.expiration = 0;
    const { resources, value, fences } = existing;
    const expiration = startedMs + duration - driftOf(all, duration);
    return new Lock(this, resources, value, this.#agreed(), expiration, fences);
  }

  /**
   * Runs `routine` under a lock that extends itself.
   *
   * @param routine - is given a signal, which is aborted when the lock is lost; `signal.error` says why
   * @throws what the routine throws; ExecutionError if the resources were not free, or the lock was lost meanwhile
   * @example
   * ```ts
   * import Redlock from "syncguard/redlock";
   *
   * const redlock = new Redlock(["redis://localhost:6379"]);
   * await redlock.using(["account:1", "account:2"], 5_000, async (signal) => {
   *   console.log("both are locked");
   *   if (signal.aborted) throw signal.error;
   * });
   * ```
   */
  async using<T>(
    resources: string[],
    duration: number,
    settings: Partial<Settings>,
    routine?: Routine<T>,
  ): Promise<T>;
  /** With the settings of the class. */
  async using<T>(resources: string[], duration: number, routine: Routine<T>): Promise<T>;
  async using<T>(
    resources: string[],
    duration: number,
    second: Partial<Settings> | Routine<T>,
    third?: Routine<T>,
  ): Promise<T> {
    const [settings, routine] =
      typeof second === "function" ? [undefined, third ?? second] : [second, third];
    checkFunction(routine, "routine");
    checkResources(resources);
    checkDuration(duration);
    const all = readSettings(settings, this.settings);
    const everyMs = everyMsOf(all, duration);
    let kept: Kept<Lock> | undefined;
    let failure: Error | undefined;
    /** The error for a lock that is lost, of which one event tells. */
    const lose = (error: unknown): Error => {
      if (kept !== undefined) reportedLosses.add(kept.current());
      return (failure ??= this.#failed(resources, error));
    };
    const extended: Extended = { taken: [], onLost: lose };
    // By its name, so that an override is called.
    const lock = await this.acquire(resources, duration, {
      ...all,
      [EXTENDED]: extended,
    } as Settings);
    const { lease, current, stop } = (kept = keep(lock, duration, everyMs, extended));
    const release = async (): Promise<void> => {
      stop();
      if (failure !== undefined) reportedLosses.add(current());
      await current()
        .release()
        .catch((error: unknown) => {
          // Otherwise it ends by itself: an event has told of the store that has failed.
          if (!(error instanceof ExecutionError && error.cause instanceof LockError)) {
            throw failure ?? error;
          }
        });
      if (failure !== undefined) throw failure;
    };
    const signal = withError(lease.signal, () => lose(lease.loss));
    return await runHeld(
      this.#backend,
      resources,
      lease,
      async () => await (routine as Routine<T>)(signal),
      release,
    );
  }

  /** The error for what a backend has answered; also an event, unless there was one. Wrong arguments stay what they are. */
  #failed(resources: readonly string[], error: unknown, isTold = false): Error {
    if (error instanceof LockError && error.code === "InvalidArgument") return error;
    const isLocked = error instanceof LockError && error.code === "AcquisitionTimeout";
    const cause = isLocked ? locked(resources) : (error as Error);
    if (!isTold) this.emit("error", cause);
    const stats = { votesFor: new Set<Client>(), votesAgainst: new Map([[this.#client, cause]]) };
    return new ExecutionError(NO_QUORUM, [attempt(stats)], { cause });
  }

  #agreed(): ReadonlyArray<Promise<ExecutionStats>> {
    return [attempt({ votesFor: new Set([this.#client]), votesAgainst: new Map() })];
  }
}

async function attempt(
  votes: Pick<ExecutionStats, "votesFor" | "votesAgainst">,
): Promise<ExecutionStats> {
  return await Promise.resolve({ membershipSize: 1, quorumSize: 1, ...votes });
}

function driftOf({ driftFactor }: Settings, duration: number): number {
  return Math.round(driftFactor * duration) + LEAST_DRIFT_MS;
}

/** The signal, with `error` once it is aborted. */
function withError(signal: AbortSignal, lose: () => unknown): RedlockAbortSignal {
  const get = (): unknown => (signal.aborted ? lose() : undefined);
  return Object.defineProperty(signal, "error", { get, configurable: true });
}

function locked({ length }: readonly string[]): ResourceLockedError {
  return new ResourceLockedError(
    length === 1 ? "the resource is locked" : `one of the ${length} resources is locked`,
  );
}

function gone(): ResourceLockedError {
  return new ResourceLockedError("the lock is gone: it has ended, or was released");
}
