/** What a handle knows of its lock beside its members. */

import type { LockError } from "../native/errors.js";
import { Holding } from "./holding.js";

/** How a lock was held, when it is released by its handle. */
export type HeldReport = { heldMs: number; extends?: number; lost?: true };

/** A lock that was granted, as far as its handle needs it. */
type Granted = { lockId: string; expiresAtMs: number };

/**
 * A handle without its methods.
 *
 * `signal` is on the prototype, and what it needs is private: results look as they always have, and a lock whose signal nobody
 * asks for has none. What this package does with handles is in functions of the class, because methods would be users' too.
 */
export class Handle {
  declare ok: true;
  declare lockId: string;
  declare expiresAtMs: number;
  declare fence?: string;
  readonly #key: string;
  #endMs: number;
  #holding: Holding | undefined;
  #isOver = false;
  #grantedMs: number | undefined;
  #onLost: ((error: LockError) => void) | undefined;

  /** @param endMs - when the lock ends unless it is extended, of `performance.now()` */
  constructor(key: string, endMs: number) {
    this.#key = key;
    this.#endMs = endMs;
  }

  /** Aborted when the lock is lost. */
  get signal(): AbortSignal {
    return Handle.holding(this).signal;
  }

  /**
   * A handle of the lock in `result`, which may itself be one.
   *
   * @param isTimed - whether somebody wants to know for how long the lock is held
   */
  static over(result: Granted, key: string, isTimed: boolean): Handle {
    const known = Handle.is(result) ? result : undefined;
    const endMs = known === undefined ? endOf(result.expiresAtMs) : known.#endMs;
    // Only the members: methods of these names may be bound to another backend.
    const handle = Object.assign(new Handle(key, endMs), result);
    const holding = known === undefined ? undefined : known.#holding;
    if (holding !== undefined) Handle.keep(handle, holding);
    if (known !== undefined) handle.#onLost = known.#onLost;
    if (isTimed) handle.#grantedMs = performance.now();
    return handle;
  }

  static is(result: object): result is Handle {
    return #key in result;
  }

  /** Lets somebody who extends the lock say when it is lost. */
  static keep(handle: Handle, holding: Holding): void {
    handle.#holding = holding;
    holding.follow(handle);
    if (handle.#onLost !== undefined) holding.onLost(handle.#onLost);
  }

  /** Keeps the `expiresAtMs` of another handle up to date, if anybody extends the lock. */
  static follow(handle: Handle, other: { expiresAtMs: number }): void {
    handle.#holding?.follow(other);
  }

  /** Calls `callback` when the lock is lost, if anybody notices that: see {@link Holding}. */
  static onLost(handle: Handle, callback: (error: LockError) => void): void {
    handle.#onLost = callback;
    handle.#holding?.onLost(callback);
  }

  /** The holder has extended the lock until `endMs`; `undefined` if it turned out to be gone. */
  static moved(handle: Handle, endMs: number | undefined): void {
    if (handle.#holding !== undefined || endMs === undefined) Handle.holding(handle).moved(endMs);
    else handle.#endMs = endMs;
  }

  /** The lock is about to be released. */
  static end(handle: Handle): void {
    handle.#isOver = true;
    handle.#holding?.end();
  }

  /** What telemetry reports when the lock is released, or lost. */
  static report(handle: object): HeldReport | undefined {
    if (!Handle.is(handle) || handle.#grantedMs === undefined) return undefined;
    const report: HeldReport = { heldMs: performance.now() - handle.#grantedMs };
    const holding = handle.#holding;
    if (holding?.extends !== undefined) report.extends = holding.extends;
    if (holding?.loss !== undefined) report.lost = true;
    return report;
  }

  /** What is known of the lock; made when it is needed. */
  static holding(handle: Handle): Holding {
    if (handle.#holding === undefined) {
      const holding = new Holding({ key: handle.#key, lockId: handle.lockId }, handle.#endMs);
      if (handle.#onLost !== undefined) holding.onLost(handle.#onLost);
      if (handle.#isOver) holding.end();
      handle.#holding = holding;
    }
    return handle.#holding;
  }
}

// Handles compare and print as the plain objects that results have always been.
Object.defineProperty(Handle.prototype, "constructor", { value: Object });

/** When a lock ends, of `performance.now()`, that ends at `expiresAtMs` of its backend's clock. */
export function endOf(expiresAtMs: number): number {
  return performance.now() + expiresAtMs - Date.now();
}
