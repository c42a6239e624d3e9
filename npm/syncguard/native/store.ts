/** A store that the addon has opened, with promises in place of numbered operations. */

import { callAddon } from "./addon.js";
import { type CheckedClaim, settingsOf } from "./claims.js";
import type {
  AcquireOptions,
  Capabilities,
  Completions,
  HoldSettings,
  LockCheck,
  NativeBackend,
  ReleaseSettings,
  ScriptSettings,
} from "./exports.js";
import { ownCompletions, run, withClient } from "./operations.js";
import {
  type Absence,
  type Acquired,
  type Failure,
  type GivenLabels,
  type MissingLock,
  type Locked,
  type RawRecord,
  settle,
  type Text,
} from "./outcome.js";

/** One wait for a lock: how the core is to wait, as numbers. What the waiting took is noted in it. */
export type CoreWait = { readonly policy: { readonly numbers: Float64Array } };

/**
 * The operations on the locks of a store. They take arguments that have been checked (`arguments.ts`, `readSignal`), and their
 * results go through `settle`.
 */
export class AddonStore {
  readonly capabilities: Capabilities;
  private readonly handAcquire: ReturnType<NativeBackend["acquire"]>;
  private readonly handRelease: ReturnType<NativeBackend["release"]>;

  /** @param connection - kept, because the clients that the core asks are forgotten once nobody has it */
  constructor(
    private readonly handle: NativeBackend,
    protected readonly connection?: object,
  ) {
    this.capabilities = handle.capabilities;
    this.handAcquire = handle.acquire();
    this.handRelease = handle.release();
  }

  /**
   * Asks once for the lock, or for all that `wanted` claims. With `wait`, waits until they are free, and notes in it what the waiting
   * took. A text as the result is the mark, in JSON, that says that the period `wanted.due` is done already.
   */
  acquire(
    key: string,
    ttlMs: number,
    wanted: AcquireDetails,
    signal: AbortSignal | undefined,
    wait: CoreWait | undefined,
  ): Promise<Acquired | Locked | Text | Failure> {
    const options = optionsOf(wanted, wait);
    const answer = run<Acquired | Locked | Text>(signal, (operation, cancellable) =>
      this.handAcquire(operation, cancellable, key, ttlMs, options),
    );
    return wait === undefined ? answer : answer.then((result) => noted(wait, result));
  }

  /** Calls `ask` whenever another server may have taken over, for as long as this store exists. */
  whenAnotherServer(ask: () => void): void {
    const told = async (): Promise<void> => {
      ask();
      await Promise.resolve();
    };
    withClient(told, (client) => {
      this.handle.whenAnotherServer(client);
      return this;
    });
  }

  /** The client that is driven has lost a connection, or has one again. */
  clientIsConnected(isConnected: boolean): void {
    this.handle.clientIsConnected(isConnected);
  }

  /** Ends all waits for locks, and all that begin later, with an error. */
  refuseWaiters(): void {
    this.handle.refuseWaiters();
  }

  /**
   * Releases locks. A release that fails goes on in the background for `lastsMs`, which is how long the locks can last. Waiters of
   * this process for one of `keys` hear of the release. With `holdMs`, the locks are not freed, but end after that time. For several
   * locks, the result says of each whether it was released.
   */
  release(
    lockIds: readonly string[],
    signal?: AbortSignal,
    lastsMs?: number,
    keys: readonly string[] = [],
    holdMs?: number,
  ): Promise<true | readonly boolean[] | Absence | Failure> {
    return run<true | readonly boolean[] | Absence>(signal, (operation, cancellable) => {
      if (lockIds.length === 1 && holdMs === undefined) {
        this.handRelease(operation, cancellable, lockIds[0] as string, lastsMs, keys[0]);
        return;
      }
      const how: ReleaseSettings = { keys: [...keys] };
      if (lastsMs !== undefined) how.lastsMs = lastsMs;
      if (holdMs !== undefined) how.holdMs = holdMs;
      this.handle.releaseSet(operation, cancellable, [...lockIds], how);
    });
  }

  /** Sends no more heartbeats for these locks, which are released through another backend. */
  stopHeartbeats(lockIds: readonly string[]): void {
    this.handle.stopHeartbeats([...lockIds]);
  }

  /** Releases the lock on `key`, and stores in the same step that something is done for the period `due`. */
  finish(
    lockId: string,
    key: string,
    due: string,
    lastsMs: number | undefined,
  ): Promise<true | Absence | Failure> {
    return run<true | Absence>(undefined, (operation, cancellable) =>
      this.handle.finish(operation, cancellable, lockId, lastsMs, key, due),
    );
  }

  /** Gives the mark of a key in JSON. With `due`, that period takes its place; with "", the mark is deleted. */
  mark(key: string, due?: string, signal?: AbortSignal): Promise<Text | Failure> {
    return run<Text>(signal, (operation, cancellable) =>
      this.handle.mark(operation, cancellable, key, due),
    );
  }

  /** Extends all of the locks or none. Gives when they end now, in milliseconds since the Unix epoch. */
  extend(
    lockIds: readonly string[],
    ttlMs: number,
    signal?: AbortSignal,
  ): Promise<number | Absence | MissingLock | Failure> {
    return run<number | Absence | MissingLock>(signal, (operation, cancellable) =>
      this.handle.extend(operation, cancellable, [...lockIds], ttlMs),
    );
  }

  isLocked(key: string, signal?: AbortSignal): Promise<boolean | Failure> {
    return run<boolean>(signal, (operation, cancellable) =>
      this.handle.isLocked(operation, cancellable, key),
    );
  }

  lookupByKey(key: string, signal?: AbortSignal): Promise<RawRecord | null | Failure> {
    return run<RawRecord | null>(signal, (operation, cancellable) =>
      this.handle.lookupByKey(operation, cancellable, key),
    );
  }

  lookupByLockId(lockId: string, signal?: AbortSignal): Promise<RawRecord | null | Failure> {
    return run<RawRecord | null>(signal, (operation, cancellable) =>
      this.handle.lookupByLockId(operation, cancellable, lockId),
    );
  }

  forceRelease(key: string, signal?: AbortSignal): Promise<boolean | Failure> {
    return run<boolean>(signal, (operation, cancellable) =>
      this.handle.forceRelease(operation, cancellable, key),
    );
  }

  /**
   * Watches a lock. Each call of the function that this gives resolves when the lock may have been freed since the call before, or
   * when the signal is aborted. `undefined` if the store cannot tell.
   */
  watch(key: string): ((signal: AbortSignal) => Promise<true | Failure>) | undefined {
    const watch = this.handle.watch(key);
    if (watch === null) return undefined;
    return (signal) => run<true>(signal, (operation) => watch.freed(operation));
  }

  /**
   * The statement that checks in a transaction of the user's own that the locks are held; PostgreSQL only. With `due`, it also stores
   * that something is done for that period of `key`, whose lock must be the only one.
   */
  check(lockIds: readonly string[], key?: string, due?: string): LockCheck {
    return callAddon(() => this.handle.check([...lockIds], key, due));
  }

  /** Creates the tables, indexes and columns that are missing; PostgreSQL only. */
  async setupSchema(): Promise<void> {
    settle(await run<true>(undefined, (operation) => this.handle.setupSchema(operation)));
  }

  /** A page of live locks in JSON. It begins behind the cursor `after`, and has about `limit` locks at most. */
  list(after: string | undefined, limit: number, signal?: AbortSignal): Promise<Text | Failure> {
    return run<Text>(signal, (operation, cancellable) =>
      this.handle.list(operation, cancellable, after, limit),
    );
  }

  /** Runs a script only if locks are held. Gives its reply in JSON, or the lock that is not there. */
  eval(
    script: ScriptSettings,
    signal?: AbortSignal,
  ): Promise<Text | Absence | MissingLock | Failure> {
    return run<Text | Absence | MissingLock>(signal, (operation, cancellable) =>
      this.handle.eval(operation, cancellable, script),
    );
  }

  /** Facts about how each node of the store is set up, in JSON. */
  facts(signal?: AbortSignal): Promise<Text | Failure> {
    return run<Text>(signal, (operation, cancellable) => this.handle.facts(operation, cancellable));
  }

  /** Runs an operation that `start` hands to the addon with this store's handle. */
  perform(signal: AbortSignal | undefined, start: StartOn): Promise<true | Failure> {
    return run<true>(signal, (operation, cancellable) =>
      start(this.handle, operation, cancellable),
    );
  }

  async close(): Promise<void> {
    settle(await run<true>(undefined, (operation) => this.handle.close(operation)));
  }
}

function noted<Result extends Acquired | Locked | Text | Failure>(
  wait: CoreWait,
  result: Result,
): Result {
  if ("waitStats" in result && result.waitStats !== undefined)
    Object.assign(wait, result.waitStats);
  return result;
}

/** The options of an acquisition beside its key and its TTL. */
export type AcquireDetails = {
  /** Several keys, or slots, in place of the key. */
  readonly claims?: readonly CheckedClaim[] | undefined;
  readonly labels?: GivenLabels | undefined;
  /** The period for which something is to be done. */
  readonly due?: string | undefined;
  /** Extends the lock from its grant on. */
  readonly hold?: HoldSettings | undefined;
};

/** The options as the addon takes them. `undefined` for most acquisitions, which want nothing: the addon has to look for each member. */
function optionsOf(
  { claims, labels, due, hold }: AcquireDetails,
  wait: CoreWait | undefined,
): AcquireOptions | undefined {
  const isNothing = claims === undefined && labels === undefined && hold === undefined;
  if (isNothing && due === undefined && wait === undefined) return undefined;
  const options: AcquireOptions = {};
  if (claims !== undefined) options.claims = claims.map(settingsOf);
  if (labels !== undefined) options.labels = labels;
  if (due !== undefined) options.due = due;
  if (wait !== undefined) options.waiting = wait.policy.numbers;
  if (hold !== undefined) options.hold = hold;
  return options;
}

/** Hands the addon an operation that is no method of {@link NativeBackend}. */
export type StartOn = (handle: NativeBackend, operation: number, cancellable: boolean) => void;

/** The operations on the locks of a store. Something other than {@link AddonStore} may offer them, too. */
export type Store = Pick<AddonStore, keyof AddonStore>;

/** Opens a store with one of the addon's functions. `connection` is given if clients in JavaScript are bound to its life. */
export function openStore(
  open: (completions: Completions) => NativeBackend,
  connection?: object,
): Store {
  return callAddon(() => new AddonStore(open(ownCompletions()), connection));
}
