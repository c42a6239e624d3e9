/** Joins a lease to whatever sends its heartbeats. */

/** The sender of a lock's heartbeats, which also says when the lock is lost. It is the core, or timers of JavaScript. */
export interface Heartbeats {
  /** The holder itself has extended the lock until `endMs`. */
  moved(endMs: number): void;
  /** Some of several locks were extended by their ids, so that they may end at `endMs`, before the others. */
  mayEnd?(endMs: number): void;
  /** Loses the lock at once if it is lost by what is known at this moment. */
  look(): void;
  /** Stops heartbeats for these locks, which somebody releases through another backend. They may be some of several. */
  leave?(lockIds: readonly string[]): void;
  /** Sends no more heartbeats, and waits for the one that is on its way. */
  settle?(): Promise<void>;
  /** Stops, because the lock is released or lost. */
  stop(): void;
  /** Stops, because the lock is forgotten and nobody will release it. */
  forget?(): void;
}

/** A lock whose handles may be collected as garbage. */
type Forgettable = { endIfForgotten(): void };

const collected = new FinalizationRegistry<Forgettable>((lease) => lease.endIfForgotten());

/** The heartbeats of a lock, and the handles by which its holder can still release it. */
export class Extension {
  private count = 0;
  private expiry: number | undefined = undefined;
  /** References are weak, because only the user may keep a handle alive. */
  private readonly handles: WeakRef<object>[] = [];

  constructor(readonly heartbeats: Heartbeats) {}

  /** How many heartbeats have extended the lock. */
  get extensions(): number {
    return this.count;
  }

  /** When the lock ends by the store's clock, as the last heartbeat said. */
  get expiresAtMs(): number | undefined {
    return this.expiry;
  }

  /** Lets `lease` check whether it is forgotten once this handle was collected. */
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

  /** Stops the heartbeats, because the lock is released or lost. */
  stop(lease: Forgettable): void {
    this.heartbeats.stop();
    collected.unregister(lease);
  }
}
