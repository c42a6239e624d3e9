/** The class of redlock 5, on the backends of this package. */

import { EventEmitter } from "node:events";
import { leaseOf } from "../lock/handle.js";
import { runLocked } from "../lock/lock.js";
import type { Fence, HeldLocks, LockOp, LocksOp, SyncGuardBackend } from "../lock/types.js";
import { LockError } from "../native/errors.js";
import { checkFunction, invalid } from "../options/validation.js";
import { ExecutionError, ResourceLockedError } from "./errors.js";
import {
  acquisitionOf,
  backendOf,
  checkDuration,
  checkResources,
  everyMsOf,
  onlyClient,
  readSettings,
} from "./settings.js";
import type {
  Client,
  ExecutionResult,
  ExecutionStats,
  RedlockAbortSignal,
  RedlockSettings,
  Settings,
} from "./types.js";

/** Programs look for it, so it is that of redlock. */
const NO_QUORUM = "The operation was unable to achieve a quorum during its retry window.";
/** Milliseconds that redlock takes off beside the drift. */
const LEAST_DRIFT_MS = 2;

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
  expiration: number;
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
    this.expiration = expiration;
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
   * @throws LockError `InvalidArgument` that names the setting; for several clients; for a third argument, redlock's scripts
   */
  constructor(clients: Iterable<Client>, settings: RedlockSettings = {}, scripts?: undefined) {
    super();
    if ((scripts as unknown) !== undefined) throw invalid("scripts cannot be replaced");
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
    let held: HeldLocks;
    try {
      held = await this.#backend.lock(resources, {
        ttlMs: duration,
        acquisition: acquisitionOf(all),
        // Whoever releases it hears of that.
        onLost: () => undefined,
      });
    } catch (error) {
      throw this.#failed(resources, error);
    }
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
      throw this.#failed(lock.resources, error);
    }
    return { attempts: this.#agreed() };
  }

  /**
   * Makes a lock end `duration` milliseconds from now. The lock that was given has no `expiration` afterwards.
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
    const startedMs = Date.now();
    if (existing.expiration < startedMs) {
      throw new ExecutionError("Cannot extend an already-expired lock.", []);
    }
    try {
      const extended = await this.#backend.extend({ ...idsOf(existing), ttlMs: duration });
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
    const [settings, routine] = typeof second === "function" ? [{}, second] : [second, third];
    checkFunction(routine, "routine");
    checkResources(resources);
    checkDuration(duration);
    const all = readSettings(settings, this.settings);
    const everyMs = everyMsOf(all, duration);
    let thrown: { error: unknown } | undefined;
    const work = async (handle: { signal: AbortSignal }): Promise<T> => {
      try {
        return await (routine as Routine<T>)(this.#withError(handle.signal, resources));
      } catch (error) {
        thrown = { error };
        throw error;
      }
    };
    try {
      return await runLocked(this.#backend, work, {
        key: resources,
        ttlMs: duration,
        autoExtend: { everyMs },
        acquisition: acquisitionOf(all),
        throwIfLost: true,
        onLost: () => undefined,
        onReleaseError: (error) => this.emit("error", error),
      });
    } catch (error) {
      if (thrown !== undefined) throw thrown.error;
      throw this.#failed(resources, error);
    }
  }

  /** The signal, with `error` once it is aborted. */
  #withError(signal: AbortSignal, resources: string[]): RedlockAbortSignal {
    let error: unknown;
    const get = (): unknown =>
      signal.aborted ? (error ??= this.#failed(resources, signal.reason)) : undefined;
    return Object.defineProperty(signal, "error", { get, configurable: true });
  }

  /** The error for what a backend has answered; also an event. Wrong arguments stay what they are. */
  #failed(resources: readonly string[], error: unknown): unknown {
    if (error instanceof LockError && error.code === "InvalidArgument") return error;
    const isLocked = error instanceof LockError && error.code === "AcquisitionTimeout";
    const cause = isLocked ? locked(resources) : (error as Error);
    this.emit("error", cause);
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

/** What names a lock for the backend. */
function idsOf({ value }: Lock): LockOp | LocksOp {
  return { lockIds: value.split(",") };
}

function locked({ length }: readonly string[]): ResourceLockedError {
  return new ResourceLockedError(
    length === 1 ? "the resource is locked" : `one of the ${length} resources is locked`,
  );
}

function gone(): ResourceLockedError {
  return new ResourceLockedError("the lock is gone: it has ended, or was released");
}
