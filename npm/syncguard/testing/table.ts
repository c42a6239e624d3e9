/** Locks in memory, by the rules of every store. */

import type { Clock } from "../values/clock.js";
import { isAfter } from "../values/due.js";
import { FENCE_THRESHOLDS, TIME_TOLERANCE_MS } from "../values/defaults.js";
import { LockError } from "../native/errors.js";
import type { Watch } from "../waiting/polling.js";
import type { Absence, MissingLock, RawRecord, StoredLabels } from "../native/outcome.js";
import type { CheckedClaim } from "../native/claims.js";
import { copyGiven } from "../options/validation.js";
import { LABELS } from "../values/arguments.js";
import { groupOf, parted, storedKey } from "../values/slots.js";
import { formatFence, generateLockId, normalizeAndValidateKey } from "../values/values.js";

/** What is kept of a lock. */
export type Row = Omit<RawRecord, "readAtMs">;

/** A lock that ended so long ago may be deleted, in milliseconds: docs/format.md, "Liveness predicate". */
const CLEANUP_MS = 2 * TIME_TOLERANCE_MS;

/** What stood in the way of an acquisition, when it ends, and what is stored with it. */
export type Obstacle = {
  readonly key: string;
  readonly freeInMs: number;
  readonly labels: StoredLabels;
  /** Whether those who share the key stood in the way of somebody who wants it alone. */
  readonly isShared: boolean;
};

/** For which period something was done last, when, and under which lock id. */
export type DoneMark = {
  readonly due: string;
  readonly doneAtMs: number;
  readonly lockId: string;
};

type Listener = { tell: () => void };

/** What several test backends share, as processes share a server. */
export class Table {
  readonly #rows = new Map<string, Row>();
  /** The locks of those who share a key, by that key. They are in `#rows`, too. */
  readonly #readers = new Map<string, Set<Row>>();
  /** Keys that nobody joins who would share them, and until when at most. */
  readonly #gates = new Map<string, number>();
  readonly #fences = new Map<string, number>();
  /** For which period something was done last, by key; as stored. */
  readonly #marks = new Map<string, DoneMark>();
  readonly #listeners = new Map<string, Set<Listener>>();

  constructor(readonly clock: Clock) {}

  /** The locks that were granted, all or none, in the order of their keys; or what stands in the way. */
  acquire(
    claims: readonly CheckedClaim[],
    ttlMs: number,
    labels: StoredLabels,
  ): readonly Row[] | Obstacle {
    const wanted = claims.map((claim) => ({ ...claim, key: normalizeAndValidateKey(claim.key) }));
    wanted.sort((a, b) => Buffer.compare(Buffer.from(a.key), Buffer.from(b.key)));
    const keys: string[] = [];
    for (const claim of wanted) {
      const free = this.#free(claim);
      if (!Array.isArray(free)) return { ...free, key: claim.key };
      keys.push(...free);
    }
    const shared = new Set(wanted.filter(({ kind }) => kind === "shared").map(({ key }) => key));
    // Counters that have come to their end leave nothing behind. Who joins others has their fence.
    const fences = keys.map((key) => this.find(key)?.fence ?? this.#nextFence(key));
    const nowMs = this.clock.now();
    return keys.map((key, at) => {
      const fence = fences[at] as string;
      const lockId = generateLockId();
      const mode = shared.has(key) ? "shared" : undefined;
      const row: Row = {
        key: mode === undefined ? key : storedKey({ key, slot: null, mode, lockId }),
        lockId,
        fence,
        acquiredAtMs: nowMs,
        expiresAtMs: nowMs + ttlMs,
        ...(mode && { isShared: true }),
        ...labels,
      };
      this.#rows.set(row.key, row);
      if (mode !== undefined) this.#join(key, row);
      return row;
    });
  }

  /** Under which names a claim can be granted, or what stands in the way. */
  #free(claim: CheckedClaim): string[] | Omit<Obstacle, "key"> {
    if (claim.kind === "shared") {
      const opensAtMs = this.#gates.get(claim.key);
      if (opensAtMs !== undefined) {
        return { freeInMs: opensAtMs - this.clock.now(), labels: {}, isShared: false };
      }
      if (this.find(claim.key)?.isShared === true) return [claim.key];
    }
    const { names, take } = placesOf(claim);
    const held = names.flatMap((name) => this.find(name) ?? []);
    if (names.length - held.length < take) {
      held.sort((a, b) => a.expiresAtMs - b.expiresAtMs);
      const first = held[0] as Row;
      return {
        freeInMs: first.expiresAtMs + TIME_TOLERANCE_MS - this.clock.now(),
        labels: copyGiven<StoredLabels>({}, first, ...LABELS),
        isShared: first.isShared === true,
      };
    }
    return names.filter((name) => this.find(name) === undefined).slice(0, take);
  }

  /** Lets nobody join those who share a key until the result is called, within `longestMs`; `undefined` if somebody else does so. */
  closeGate(key: string, longestMs: number): (() => void) | undefined {
    if (this.#gates.has(key)) return undefined;
    this.#gates.set(key, this.clock.now() + longestMs);
    return () => {
      this.#gates.delete(key);
      this.#freed(key);
    };
  }

  release(lockId: string): true | Absence {
    const row = this.#owned(lockId);
    if (typeof row === "string") return row;
    this.#delete(row);
    return true;
  }

  /** What is stored, if that is the period `due`, or one after which it cannot come. */
  doneBefore(key: string, due: string): DoneMark | undefined {
    const mark = this.#marks.get(key);
    return mark === undefined || isAfter(due, mark.due) ? undefined : mark;
  }

  /** Releases a lock, and stores that something is done, if the lock is held; also after that was done once. */
  finish(lockId: string, key: string, due: string): true | Absence {
    const row = this.#owned(lockId);
    const mark = this.#marks.get(key);
    if (typeof row === "string" || row.key !== key) {
      const isOwn = mark?.lockId === lockId && mark.due === due;
      return isOwn ? true : typeof row === "string" ? row : "not-found";
    }
    if (mark === undefined || isAfter(due, mark.due)) this.setMark(key, due, lockId);
    this.#delete(row);
    return true;
  }

  mark(key: string): DoneMark | undefined {
    return this.#marks.get(key);
  }

  setMark(key: string, due: string | undefined, lockId: string): void {
    if (due === undefined) this.#marks.delete(key);
    else this.#marks.set(key, { due, doneAtMs: this.clock.now(), lockId });
  }

  /** All or none. */
  extend(lockIds: readonly string[], ttlMs: number): number | MissingLock {
    const rows = lockIds.map((lockId) => this.#owned(lockId));
    for (const [lock, row] of rows.entries()) {
      if (typeof row === "string") return { absence: row, lock };
    }
    const expiresAtMs = this.clock.now() + ttlMs;
    for (const row of rows as Row[]) row.expiresAtMs = expiresAtMs;
    return expiresAtMs;
  }

  forceRelease(key: string): boolean {
    const held = this.held(key);
    for (const row of held) this.#delete(row);
    return held.length > 0;
  }

  /** The lock on a key that is held: of one that is shared, what all who share it have together. */
  find(key: string): Row | undefined {
    const held = this.held(key);
    const [first] = held;
    if (first?.isShared !== true) return first;
    const expiresAtMs = Math.max(...held.map((row) => row.expiresAtMs));
    const { fence, acquiredAtMs } = first;
    return { key, lockId: groupOf(key), fence, acquiredAtMs, expiresAtMs, isShared: true };
  }

  /** The locks on a key that are held: one, or those of all who share it. */
  held(key: string): Row[] {
    const row = this.#rows.get(key);
    if (row !== undefined && this.#isLive(row)) return [row];
    return [...(this.#readers.get(key) ?? [])].filter((reader) => this.#isLive(reader));
  }

  /** Adds one to those who share a key, and forgets those who have ended. */
  #join(key: string, row: Row): void {
    for (const reader of this.#readers.get(key) ?? []) {
      if (!this.#isLive(reader)) this.#forget(reader);
    }
    const readers = this.#readers.get(key) ?? new Set();
    this.#readers.set(key, readers.add(row));
  }

  #forget(row: Row): void {
    this.#rows.delete(row.key);
    if (row.isShared !== true) return;
    const { key } = parted(row.key);
    const readers = this.#readers.get(key);
    readers?.delete(row);
    if (readers?.size === 0) this.#readers.delete(key);
  }

  findById(lockId: string): Row | undefined {
    const row = this.#owned(lockId);
    if (typeof row === "string") return undefined;
    return row.isShared === true ? { ...row, key: parted(row.key).key } : row;
  }

  /** Deletes what is left of a lock that ended long ago. */
  cleanUp(key: string): void {
    const row = this.#rows.get(key);
    if (row !== undefined && row.expiresAtMs <= this.clock.now() - CLEANUP_MS) {
      this.#rows.delete(key);
    }
  }

  /** Ends the time of a lock, as if its holder had been paused. */
  expire(key: string): boolean {
    const held = this.held(key);
    for (const row of held) row.expiresAtMs = this.clock.now() - TIME_TOLERANCE_MS;
    if (held.length > 0) this.#freed(key);
    return held.length > 0;
  }

  /**
   * Calls `onFreed` once after each `next()`, when the lock has been freed; the first time at once, because what happened
   * between the last attempt and the watch was not heard.
   */
  watch(key: string, onFreed: () => void, isListening: () => boolean): Watch {
    let [wants, missed] = [false, true];
    const listener: Listener = {
      tell: () => {
        if (!isListening()) return;
        missed = !wants;
        if (!wants) return;
        wants = false;
        // As from elsewhere.
        void Promise.resolve().then(onFreed);
      },
    };
    const listeners = this.#listeners.get(key) ?? new Set();
    listeners.add(listener);
    this.#listeners.set(key, listeners);
    return {
      next: () => {
        wants = true;
        if (missed) listener.tell();
      },
      close: () => {
        listeners.delete(listener);
        if (listeners.size === 0) this.#listeners.delete(key);
      },
    };
  }

  /** Tells everybody, as after messages may have been missed. */
  tellAll(): void {
    for (const key of this.#listeners.keys()) this.#freed(key);
  }

  #owned(lockId: string): Row | Absence {
    for (const row of this.#rows.values()) {
      if (row.lockId === lockId) return this.#isLive(row) ? row : "expired";
    }
    return "not-found";
  }

  #isLive(row: Row): boolean {
    return row.expiresAtMs > this.clock.now() - TIME_TOLERANCE_MS;
  }

  #delete(row: Row): void {
    this.#forget(row);
    this.#freed(row.key);
  }

  #freed(key: string): void {
    // Who waits for a slot hears of all.
    for (const { tell } of this.#listeners.get(parted(key).key) ?? []) tell();
  }

  #nextFence(key: string): string {
    const timeMs = Math.min(Math.trunc(this.clock.now()), Number(FENCE_THRESHOLDS.WARN));
    const number = Math.max((this.#fences.get(key) ?? 0) + 1, timeMs);
    const fence = formatFence(number);
    if (fence > FENCE_THRESHOLDS.MAX) {
      throw new LockError("Internal", "Fence counter exceeds the limit; use a new key");
    }
    this.#fences.set(key, number);
    return fence;
  }
}

/** The names of which a claim takes so many. */
function placesOf(claim: CheckedClaim): { names: string[]; take: number } {
  const { key } = claim;
  switch (claim.kind) {
    case "exclusive":
    case "shared":
      return { names: [key], take: 1 };
    case "slots": {
      const slots = Array.from({ length: claim.slots }, (_, at) => at + 1);
      return { names: slots.map((slot) => storedKey({ key, slot })), take: claim.take };
    }
  }
}
