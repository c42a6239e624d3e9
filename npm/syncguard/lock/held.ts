/** What a handle knows of its lock beside its members. */

import type { LockError } from "../native/errors.js";
import type { Clock } from "./clock.js";
import { markOf } from "./forgotten.js";
import { Holding } from "./holding.js";
import type { OnLost } from "./types.js";

/** How a lock was held, when it is released by its handle. */
export type HeldReport = { heldMs: number; extensions?: number; lost?: true };

/** A lock that was granted, as far as its handle needs it. */
type Granted = { lockId: string; expiresAtMs: number };

/**
 * A handle without its methods.
 *
 * `signal` is a getter, and what it needs is private, so that a lock whose signal nobody asks for has none. What this package does with handles is in functions of the class, because methods would be users' too.
 */
export class Handle {
  declare ok: true;
  declare lockId: string;
  declare expiresAtMs: number;
  declare fence?: string;
  declare key?: string;
  readonly #key: string;
  readonly #clock: Clock;
  #endMs: number;
  #lastsMs: number;
  #holding: Holding | undefined;
  #isOver = false;
  #isReleased = false;
  #grantedMs: number | undefined;
  #onLost: ((holding: Holding) => void) | undefined;
  #tells: OnLost | undefined;
  /** All handles of one lock have the same: see {@link markOf}. */
  #mark: object | undefined;

  /**
   * @param endMs - when the lock ends unless it is extended, of `clock.elapsed()`
   * @param ttlMs - for how long it was granted
   */
  constructor(key: string, endMs: number, clock: Clock, ttlMs: number) {
    this.#key = key;
    this.#clock = clock;
    this.#endMs = endMs;
    this.#lastsMs = ttlMs;
  }

  /** Aborted when the lock is lost. */
  get signal(): AbortSignal {
    return Handle.holding(behind(this)).signal;
  }

  /**
   * A handle of the lock in `result`, which may itself be one.
   *
   * @param isTimed - whether somebody wants to know for how long the lock is held
   */
  static over(result: Granted, key: string, clock: Clock, isTimed: boolean): Handle {
    const known = Handle.is(result) ? result : undefined;
    const endMs = known === undefined ? endOf(result.expiresAtMs, clock) : known.#endMs;
    const ttlMs = known === undefined ? endMs - clock.elapsed() : known.#lastsMs;
    // Only the members: methods of these names may be bound to another backend.
    const handle = new Handle(key, endMs, clock, ttlMs);
    for (const name of Reflect.ownKeys(result)) copyMember(result, handle, name);
    if (known !== undefined && Object.hasOwn(known, "signal")) Handle.complete(handle);
    if (known !== undefined) {
      handle.#onLost = known.#onLost;
      handle.#tells = known.#tells;
      handle.#mark = known.#mark;
      handle.#holding = known.#holding;
      known.#holding?.follow(handle);
    }
    if (isTimed) handle.#grantedMs = clock.elapsed();
    return handle;
  }

  static is(result: object): result is Handle {
    return #key in result;
  }

  /**
   * Gives it the members of a {@link HeldLock} that results did not have in SyncGuard 2. They are its own, so that what is spread
   * of it has them, too.
   */
  static complete(handle: Handle): void {
    handle.key = handle.#key;
    // Every lock comes through here, and `Object.defineProperty` takes two and a half times as long.
    (handle as unknown as Legacy).__defineGetter__("signal", SIGNAL.get);
  }

  /** Lets somebody who extends the lock say when it is lost. */
  static keep(handle: Handle, holding: Holding): void {
    handle.#holding = holding;
    handle.#mark = markOf(holding);
    holding.follow(handle);
    holding.tells ??= handle.#tells;
    if (handle.#onLost !== undefined) holding.onLost(handle.#onLost);
  }

  /** Says who is told that the lock is lost; otherwise it is printed. */
  static tell(handle: Handle, onLost: OnLost): void {
    handle.#tells = onLost;
    if (handle.#holding !== undefined) handle.#holding.tells = onLost;
  }

  /** Keeps the `expiresAtMs` of another handle up to date, if anybody extends the lock. */
  static follow(handle: Handle, other: { expiresAtMs: number }): void {
    handle.#holding?.follow(other);
  }

  /** Notes that somebody wants to know for how long the lock is held. */
  static time(handle: Handle): void {
    handle.#grantedMs = handle.#clock.elapsed();
  }

  /**
   * Calls `callback`, too, when the lock is lost, if anybody notices that: see {@link Holding}. It must not refer to the handle,
   * which may be collected before.
   */
  static onLost(handle: Handle, callback: (report: HeldReport | undefined) => void): void {
    handle.#onLost = lossTold(handle.#onLost, callback, handle.#grantedMs, handle.#clock);
    handle.#holding?.onLost(handle.#onLost);
  }

  /** Whether somebody extends the lock. */
  static isExtended(handle: Handle): boolean {
    return handle.#holding?.isExtended === true;
  }

  /** The holder has extended the lock until `endMs`; `undefined` if it turned out to be gone. */
  static moved(handle: Handle, endMs: number | undefined): void {
    if (handle.#holding !== undefined || endMs === undefined) Handle.holding(handle).moved(endMs);
    else handle.#endMs = endMs;
  }

  /** It was extended by `ttlMs` until `endMs`, which this handle may not have been used for. */
  static extended(handle: Handle, endMs: number, ttlMs: number): void {
    handle.#endMs = endMs;
    handle.#lastsMs = Math.max(handle.#lastsMs, ttlMs);
  }

  /** How long the lock can last from now on, by all that it was granted and extended for. */
  static lastsMs(handle: Handle): number {
    return handle.#lastsMs;
  }

  /** The holder asks to have the lock extended until `endMs`: see {@link Holding.endsBy}. */
  static endsBy(handle: Handle, endMs: number): () => void {
    if (handle.#holding !== undefined) return handle.#holding.endsBy(endMs);
    const beforeMs = handle.#endMs;
    if (!(endMs < beforeMs)) return () => undefined;
    handle.#endMs = endMs;
    return () => Handle.moved(handle, beforeMs);
  }

  /** The lock is about to be released. */
  static end(handle: Handle): void {
    handle.#isOver = true;
    handle.#holding?.end();
  }

  /** This process itself gives the lock up. It knows that, so that nothing is printed. */
  static giveUp(handle: Handle, message: string): void {
    const holding = Handle.holding(handle);
    holding.tells ??= () => undefined;
    holding.lose(message);
  }

  /** A release has freed the lock, or may have done so: whoever releases it again learns nothing of it. */
  static released(handle: Handle): void {
    handle.#isReleased = true;
  }

  /** A release has found no such lock. */
  static gone(handle: Handle): void {
    if (!handle.#isReleased) Handle.holding(handle).gone();
  }

  /** Whether the holder can know that the lock is lost: see {@link Holding.isLost}. */
  static isLost(handle: Handle): boolean {
    return handle.#holding?.isLost() === true;
  }

  /** The lock is lost, although nobody may have asked for the signal yet. */
  static lose(handle: Handle, message: string): void {
    Handle.holding(handle).lose(message);
  }

  /** Why the lock is lost, if it is. */
  static loss(handle: Handle): LockError | undefined {
    return handle.#holding?.loss;
  }

  /** Whether the time of the lock is over at a time of its clock: its release may have failed. */
  static isOver(handle: Handle, nowMs: number): boolean {
    const endMs = handle.#holding === undefined ? handle.#endMs : handle.#holding.ends();
    return (endMs ?? endOf(handle.expiresAtMs, handle.#clock)) <= nowMs;
  }

  static key(handle: Handle): string {
    return handle.#key;
  }

  /** What telemetry reports when the lock is released, or lost. */
  static report(handle: object): HeldReport | undefined {
    if (!Handle.is(handle)) return undefined;
    return reportOf(handle.#grantedMs, handle.#clock, handle.#holding);
  }

  /** The part of {@link Handle.report} that says that the lock is lost. */
  static lossOf(handle: object): { lost?: true } {
    return Handle.is(handle) && handle.#holding?.loss !== undefined ? { lost: true } : {};
  }

  /** What is known of the lock; made when it is needed. */
  static holding(handle: Handle): Holding {
    if (handle.#holding === undefined) {
      const ids = { key: handle.#key, lockId: handle.lockId };
      const holding = new Holding(ids, handle.#endMs, handle.#clock);
      if (handle.#onLost !== undefined) holding.onLost(handle.#onLost);
      holding.tells = handle.#tells;
      if (handle.#isOver) holding.end();
      handle.#holding = holding;
    }
    return handle.#holding;
  }
}

function copyMember(from: object, to: object, name: PropertyKey): void {
  // Asked for, a signal would be made. A handle has its own.
  if (name === "signal" || !Object.prototype.propertyIsEnumerable.call(from, name)) return;
  Reflect.set(to, name, Reflect.get(from, name));
}

/** The same getter for all, so that V8 can tell handles to be alike. */
const SIGNAL = Object.getOwnPropertyDescriptor(Handle.prototype, "signal") as Getter;

/** What every object has, and TypeScript leaves out. */
type Legacy = { __defineGetter__(name: string, get: Getter["get"]): void };
type Getter = { get: () => unknown };

/** What is given to a handle's `extend`, which then answers with the handle. A property that led to it would be printed. */
export const WHOSE: unique symbol = Symbol("whose");

/** The handle itself, of a Proxy or of an object that inherits from it: neither has private fields. */
function behind(given: Handle): Handle {
  if (Handle.is(given)) return given;
  const { extend } = given as { extend?: (asked: typeof WHOSE) => unknown };
  const owner = extend?.(WHOSE);
  if (typeof owner === "object" && owner !== null && Handle.is(owner)) return owner;
  throw new TypeError("signal was asked for of an object that is no lock");
}

// Handles compare and print as the plain objects that results have always been.
Object.defineProperty(Handle.prototype, "constructor", { value: Object });

/** In a function of its own, so that what it gives refers to no handle. */
function lossTold(
  before: ((holding: Holding) => void) | undefined,
  callback: (report: HeldReport | undefined) => void,
  grantedMs: number | undefined,
  clock: Clock,
): (holding: Holding) => void {
  // Another handle of the same lock may find it lost, too.
  let isTold = false;
  return (holding) => {
    before?.(holding);
    if (isTold) return;
    isTold = true;
    callback(reportOf(grantedMs, clock, holding));
  };
}

function reportOf(
  grantedMs: number | undefined,
  clock: Clock,
  holding: Holding | undefined,
): HeldReport | undefined {
  if (grantedMs === undefined) return undefined;
  const report: HeldReport = { heldMs: clock.elapsed() - grantedMs };
  if (holding?.extensions !== undefined) report.extensions = holding.extensions;
  if (holding?.loss !== undefined) report.lost = true;
  return report;
}

/** When a lock ends, of `clock.elapsed()`, that ends at `expiresAtMs` of its backend's clock. */
export function endOf(expiresAtMs: number, clock: Clock): number {
  return clock.elapsed() + expiresAtMs - clock.now();
}
