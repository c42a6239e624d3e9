/** A store of locks as the addon opens it, with promises in place of numbered operations. */

import { callAddon } from "./addon.js";
import type {
  AcquireOptions,
  Capabilities,
  ClaimSettings,
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
  type MissingLock,
  type Locked,
  type RawRecord,
  settle,
  type Text,
} from "./outcome.js";
import type { Wait } from "./wait.js";

/**
 * What can be done with the locks of a store. It takes arguments that have been checked (`arguments.ts`, `readSignal`).
 * What an operation gives goes through `settle`.
 */
export class AddonStore {
  readonly capabilities: Capabilities;
  private readonly handAcquire: ReturnType<NativeBackend["acquire"]>;
  private readonly handRelease: ReturnType<NativeBackend["release"]>;

  /** JavaScript that the connection asks lives for as long as `connection` does. */
  constructor(
    private readonly handle: NativeBackend,
    protected readonly connection?: object,
  ) {
    this.capabilities = handle.capabilities;
    this.handAcquire = handle.acquire();
    this.handRelease = handle.release();
  }

  /**
   * Asks once for the lock, or for all that `wanted` claims; with `wait`, until it is free, and notes there what that has taken.
   * The text, in JSON, says what is done already of what `wanted` is due.
   */
  acquire(
    key: string,
    ttlMs: number,
    wanted: AcquireDetails,
    signal: AbortSignal | undefined,
    wait: Wait | undefined,
  ): Promise<Acquired | Locked | Text | Failure> {
    const options = optionsOf(wanted, wait);
    const answer = run<Acquired | Locked | Text>(signal, (operation, cancellable) =>
      this.handAcquire(operation, cancellable, key, ttlMs, options),
    );
    return wait === undefined ? answer : answer.then((result) => noted(wait, result));
  }

  /** Calls `ask` whenever another server may keep the locks from now on, for as long as there is this store. */
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

  /** Lets all fail who wait for a lock, and who come to wait later. */
  refuseWaiters(): void {
    this.handle.refuseWaiters();
  }

  /**
   * `lastsMs` is how long the locks can last: a release that fails goes on in the background for so long. Those of this process
   * who wait for one of `keys` hear of the release. With `holdMs`, the locks are held for so long still, and end then. Of
   * several it is told of each whether it was released.
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

  /** For which period of the key something was done last, in JSON. Then `due` is stored in its place; with "", nothing. */
  mark(key: string, due?: string, signal?: AbortSignal): Promise<Text | Failure> {
    return run<Text>(signal, (operation, cancellable) =>
      this.handle.mark(operation, cancellable, key, due),
    );
  }

  /** When they end now, in milliseconds since the Unix epoch. All or none are extended. */
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
   * Gives what resolves when the lock may have been freed since the last time it did, or with the signal; `undefined` if the store
   * cannot tell.
   */
  watch(key: string): ((signal: AbortSignal) => Promise<true | Failure>) | undefined {
    const watch = this.handle.watch(key);
    if (watch === null) return undefined;
    return (signal) => run<true>(signal, (operation) => watch.freed(operation));
  }

  /**
   * The statement that checks in a transaction of the user's own that the locks are held; PostgreSQL only. Of one, on `key`, it may
   * store that something is done for the period `due`.
   */
  check(lockIds: readonly string[], key?: string, due?: string): LockCheck {
    return callAddon(() => this.handle.check([...lockIds], key, due));
  }

  /** Makes what is missing of the tables; PostgreSQL only. */
  async setupSchema(): Promise<void> {
    settle(await run<true>(undefined, (operation) => this.handle.setupSchema(operation)));
  }

  /** Some of the live locks, in JSON: from after the cursor `after` on, at most about `limit`. */
  list(after: string | undefined, limit: number, signal?: AbortSignal): Promise<Text | Failure> {
    return run<Text>(signal, (operation, cancellable) =>
      this.handle.list(operation, cancellable, after, limit),
    );
  }

  /** Runs a script only if locks are held: its reply in JSON, or which lock is not there. */
  eval(
    script: ScriptSettings,
    signal?: AbortSignal,
  ): Promise<Text | Absence | MissingLock | Failure> {
    return run<Text | Absence | MissingLock>(signal, (operation, cancellable) =>
      this.handle.eval(operation, cancellable, script),
    );
  }

  /** How the store is set up, in JSON: facts by name, for each node. */
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
  wait: Wait,
  result: Result,
): Result {
  if ("waitStats" in result && result.waitStats !== undefined)
    Object.assign(wait, result.waitStats);
  return result;
}

/** What an acquisition wants beside a key and a TTL. */
export type AcquireDetails = {
  /** Several keys, or slots, in place of the key. */
  readonly claims?: ClaimSettings[] | undefined;
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /** The period for which something is to be done. */
  readonly due?: string | undefined;
  /** Extends the lock from its grant on. */
  readonly hold?: HoldSettings | undefined;
};

/** The same for the addon, which has to look for each: `undefined` if nothing is wanted, as of most acquisitions. */
function optionsOf(
  { claims, labels, due, hold }: AcquireDetails,
  wait: Wait | undefined,
): AcquireOptions | undefined {
  const isNothing = claims === undefined && labels === undefined && hold === undefined;
  if (isNothing && due === undefined && wait === undefined) return undefined;
  const options: AcquireOptions = {};
  if (claims !== undefined) options.claims = claims;
  if (labels !== undefined) options.labels = labels;
  if (due !== undefined) options.due = due;
  if (wait !== undefined) options.waiting = wait.policy.numbers;
  if (hold !== undefined) options.hold = hold;
  return options;
}

/** Hands over an operation that is none of {@link NativeBackend}'s own; otherwise as these do. */
export type StartOn = (handle: NativeBackend, operation: number, cancellable: boolean) => void;

/** What can be done with the locks of a store, whoever stands before it. */
export type Store = Pick<AddonStore, keyof AddonStore>;

/** Opens a store with one of the addon's functions, on `connection` if that is asked for anything in JavaScript. */
export function openStore(
  open: (completions: Completions) => NativeBackend,
  connection?: object,
): Store {
  return callAddon(() => new AddonStore(open(ownCompletions()), connection));
}
