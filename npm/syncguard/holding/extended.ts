/** What a lease knows of those who extend its lock. */

/** What sends the heartbeats of a lock, and says when it is lost: the core, or timers of JavaScript. */
export interface Heartbeats {
  /** The holder itself has extended the lock until `endMs`. */
  moved(endMs: number): void;
  /** Some of several locks were extended until `endMs` by their ids. */
  mayEnd?(endMs: number): void;
  /** Tells the lock at once if it is lost, by what is known at this moment. */
  look(): void;
  /** Locks are released through another backend, and perhaps some of several only: nothing more is to be sent for these. */
  leave?(lockIds: readonly string[]): void;
  /** Sends nothing more, and waits for what is on its way. */
  settle?(): Promise<void>;
  /** The lock is released, or lost: nothing more is to be sent. */
  stop(): void;
  /** The same where nobody has told the store, and nobody will. */
  forget?(): void;
}

/** A lock whose handles may be collected as garbage. */
type Forgettable = { endIfForgotten(): void };

const collected = new FinalizationRegistry<Forgettable>((lease) => lease.endIfForgotten());

/** The heartbeats of a lock, and the handles by which its holder can still release it. */
export class Extension {
  private count = 0;
  private expiry: number | undefined = undefined;
  /** Weak: nothing but its owner may keep a handle. */
  private readonly handles: WeakRef<object>[] = [];

  constructor(readonly heartbeats: Heartbeats) {}

  /** How many heartbeats have extended the lock. */
  get extensions(): number {
    return this.count;
  }

  /** When it ends, as the last of them said by the store's clock. */
  get expiresAtMs(): number | undefined {
    return this.expiry;
  }

  /** Asks `lease` once the handle was collected. */
  follow(handle: object, lease: Forgettable): void {
    this.handles.push(new WeakRef(handle));
    collected.register(handle, lease, lease);
  }

  /** A heartbeat has made the lock end at this time of the store. */
  beat(expiresAtMs: number): void {
    this.count += 1;
    this.expiry = expiresAtMs;
  }

  /** Whether there were handles, and all of them were collected. */
  get isForgotten(): boolean {
    return this.handles.length > 0 && this.handles.every((handle) => handle.deref() === undefined);
  }

  /** The lock is released, or lost. */
  stop(lease: Forgettable): void {
    this.heartbeats.stop();
    collected.unregister(lease);
  }
}
