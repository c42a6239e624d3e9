/** One test backend's way to a table of locks. */

import { hostname } from "node:os";
import type { LockStore } from "../backend/context.js";
import { watchSignals } from "../waiting/cancellation.js";
import { askUntilHeld, type Locked as Polled, type Watch } from "../waiting/polling.js";
import { LockError, type LockErrorCode } from "../native/errors.js";
import {
  type Absence,
  type Acquired,
  type Busy,
  Failure,
  type MissingLock,
  type Locked,
  type RawRecord,
  settle,
  type StoredLabels,
  type Text,
} from "../native/outcome.js";
import { parted } from "../values/slots.js";
import type { CheckedClaim } from "../native/claims.js";
import type { AcquireDetails } from "../native/store.js";
import { FENCE_THRESHOLDS } from "../values/defaults.js";
import { isOfKind, shownDue, storedDue } from "../values/due.js";
import { generateLockId, normalizeAndValidateKey } from "../values/values.js";
import { copyGiven, withoutNulls } from "../options/validation.js";
import { LABELS } from "../values/arguments.js";
import { onAbort } from "../native/signal.js";
import type { Wait } from "../values/wait.js";
import { Faults, type FaultyOperation } from "./faults.js";
import { Gate } from "./gate.js";
import { type DoneMark, type Obstacle, type Row, type Table } from "./table.js";

type Settings = { operationTimeoutMs: number; cleanupInIsLocked: boolean };
type Answer<T> = T | Failure;
type Granted = Acquired & { readonly ok: true; readonly rows: readonly Row[] };
type Found = Granted | (Polled & Locked & { readonly isShared: boolean });
type AskedOfTable = {
  readonly claims: readonly CheckedClaim[];
  readonly ttlMs: number;
  readonly labels: AcquireDetails["labels"];
  readonly isSet: boolean;
};

/** One operation. */
type Call<T> = {
  readonly name: FaultyOperation;
  readonly signal: AbortSignal | undefined;
  /** A limit below the backend's own. */
  readonly limitMs?: number | undefined;
  readonly run: () => T;
  /** Takes back what was done when nobody waits for the answer any more. */
  readonly undo?: (done: T) => void;
};

/** As the core makes it. Deno would ask its user for a permission. */
const ownerOfProcess = `${"Deno" in globalThis ? "unknown" : hostname().slice(0, 80)}:${process.pid}`;

export class TestStore implements LockStore {
  readonly capabilities: LockStore["capabilities"] = {
    backend: "test",
    supportsFencing: true,
    timeAuthority: "server",
  };
  /** Aborted when nobody may wait any more. */
  readonly #refusal = new AbortController();
  #isClosed = false;

  constructor(
    private readonly table: Table,
    private readonly faults: Faults,
    private readonly settings: Settings,
  ) {}

  async acquire(
    key: string,
    ttlMs: number,
    wanted: AcquireDetails,
    signal: AbortSignal | undefined,
    wait: Wait | undefined,
  ): Promise<Answer<Acquired | Locked | Text>> {
    const { clock } = this.table;
    if (wanted.due !== undefined) {
      return await this.#askDue(key, ttlMs, wanted, storedDue(wanted.due), signal);
    }
    const claims = wanted.claims ?? [{ kind: "exclusive", key }];
    const asked = { claims, ttlMs, labels: wanted.labels, isSet: wanted.claims !== undefined };
    if (wait === undefined) return await this.#ask(asked, signal);
    const cancellation = watchSignals(signal, this.#refusal.signal, key);
    /** What stood in the way. */
    let obstacle = claims[0]?.key ?? key;
    const gate = new Gate(this.table);
    const ask = async (limitMs: number): Promise<Found> => {
      const startedMs = clock.elapsed();
      const found = settle(await this.#ask(asked, cancellation?.signal, limitMs));
      if (found.ok) {
        wait.lastMs = clock.elapsed() - startedMs;
        return found;
      }
      obstacle = found.lockedKey ?? key;
      if (found.isShared) gate.refused(normalizeAndValidateKey(obstacle));
      return found;
    };
    const watch = (onFreed: () => void): Watch => {
      const names = claims.map((claim) => claim.key);
      const watches = names.map((name) =>
        this.#watch(name, () => {
          if (name === obstacle) onFreed();
          else watches[names.indexOf(name)]?.next();
        }),
      );
      return {
        next: () => watches[names.indexOf(obstacle)]?.next(),
        close: () => watches.forEach((keyWatch) => keyWatch.close()),
      };
    };
    try {
      return await askUntilHeld<Granted>({ key, clock, wait, cancellation, ask, watch });
    } catch (error) {
      if (!(error instanceof LockError) || error.code !== "AcquisitionTimeout") throw error;
      // As an outcome, so that the error has the stack of whoever waited.
      const context = error.context ?? {};
      const busy = copyGiven<Busy>({ key: obstacle }, context, "retryAfterMs", ...LABELS);
      return new Failure(error.code, error.message, [], undefined, busy);
    } finally {
      gate.leave();
      cancellation?.stop();
    }
  }

  refuseWaiters(): void {
    this.#refusal.abort();
  }

  /** One attempt, if the period is still to be done. */
  async #askDue(
    rawKey: string,
    ttlMs: number,
    { labels }: AcquireDetails,
    due: string,
    signal: AbortSignal | undefined,
  ): Promise<Answer<Found | Text>> {
    const key = normalizeAndValidateKey(rawKey);
    const claims: readonly CheckedClaim[] = [{ kind: "exclusive", key }];
    const asked = { claims, ttlMs, labels, isSet: false };
    const found = await this.#ask(asked, signal, undefined, () => this.table.doneBefore(key, due));
    if (found instanceof Failure || !("doneAtMs" in found)) return found;
    if (isOfKind(found.due, due)) return textOf(found);
    return failed("InvalidArgument", OTHER_KIND);
  }

  /** One attempt. */
  async #ask<Before extends object = never>(
    { claims, ttlMs, labels, isSet }: AskedOfTable,
    signal: AbortSignal | undefined,
    limitMs?: number,
    before?: () => Before | undefined,
  ): Promise<Answer<Found | Before>> {
    const done = await this.#perform<Granted["rows"] | Obstacle | { readonly before: Before }>({
      name: "acquire",
      signal,
      limitMs,
      run: () => {
        const found = before?.();
        if (found !== undefined) return { before: found };
        const stored = withoutNulls({ owner: ownerOfProcess, ...labels }) as StoredLabels;
        return this.table.acquire(claims, ttlMs, stored);
      },
      undo: (granted) => {
        if ("freeInMs" in granted || "before" in granted) return;
        for (const { lockId } of granted) this.table.release(lockId);
      },
    });
    if (done instanceof Failure) return done;
    if ("before" in done) return done.before;
    if ("freeInMs" in done) {
      const { key, freeInMs, labels, isShared } = done;
      const busy = { retryAfterMs: freeInMs, ...labels };
      return { ok: false, freeInMs, lockedKey: isSet ? key : undefined, busy, isShared };
    }
    const [first] = done as readonly [Row];
    const granted: Granted = {
      ok: true,
      rows: done,
      lockId: first.lockId,
      fence: first.fence,
      expiresAtMs: first.expiresAtMs,
      fenceNearLimit: done.some(({ fence }) => fence > FENCE_THRESHOLDS.WARN),
    };
    if (!isSet) return granted;
    const locks = done.map(({ key: stored, lockId, fence }) => {
      const { key, slot = null } = parted(stored);
      return { key, slot, lockId, fence };
    });
    return { ...granted, locks };
  }

  release(
    lockIds: readonly string[],
    signal?: AbortSignal,
    _lastsMs?: number,
    _keys?: readonly string[],
    holdMs?: number,
  ): Promise<Answer<true | readonly boolean[] | Absence>> {
    const run = (): true | readonly boolean[] | Absence => {
      const free = (lockId: string): true | Absence => {
        if (holdMs === undefined) return this.table.release(lockId);
        const ended = this.table.extend([lockId], holdMs);
        return typeof ended === "number" ? true : ended.absence;
      };
      const found = lockIds.map(free);
      return lockIds.length === 1 ? (found[0] as true | Absence) : found.map((is) => is === true);
    };
    return this.#perform({ name: "release", signal, run });
  }

  finish(lockId: string, key: string, due: string): Promise<Answer<true | Absence>> {
    const run = (): true | Absence =>
      this.table.finish(lockId, normalizeAndValidateKey(key), storedDue(due));
    return this.#perform({ name: "release", signal: undefined, run });
  }

  mark(rawKey: string, due?: string, signal?: AbortSignal): Promise<Answer<Text>> {
    const run = (): Text => {
      const key = normalizeAndValidateKey(rawKey);
      const before = this.table.mark(key);
      if (due !== undefined) {
        this.table.setMark(key, due === "" ? undefined : storedDue(due), generateLockId());
      }
      return textOf(before);
    };
    return this.#perform({ name: "lookup", signal, run });
  }

  extend(
    lockIds: readonly string[],
    ttlMs: number,
    signal?: AbortSignal,
  ): Promise<Answer<number | MissingLock>> {
    return this.#perform({
      name: "extend",
      signal,
      run: () => this.table.extend(lockIds, ttlMs),
    });
  }

  isLocked(rawKey: string, signal?: AbortSignal): Promise<Answer<boolean>> {
    return this.#perform({
      name: "isLocked",
      signal,
      run: () => {
        const key = normalizeAndValidateKey(rawKey);
        if (this.settings.cleanupInIsLocked) this.table.cleanUp(key);
        return this.table.find(key) !== undefined;
      },
    });
  }

  lookupByKey(key: string, signal?: AbortSignal): Promise<Answer<RawRecord | null>> {
    return this.#lookup(() => this.table.find(normalizeAndValidateKey(key)), signal);
  }

  lookupByLockId(lockId: string, signal?: AbortSignal): Promise<Answer<RawRecord | null>> {
    return this.#lookup(() => this.table.findById(lockId), signal);
  }

  forceRelease(key: string, signal?: AbortSignal): Promise<Answer<boolean>> {
    return this.#perform({
      name: "forceRelease",
      signal,
      run: () => this.table.forceRelease(normalizeAndValidateKey(key)),
    });
  }

  #watch(key: string, onFreed: () => void): Watch {
    const isListening = (): boolean => !this.#isClosed && !Faults.isDown(this.faults);
    return this.table.watch(normalizeAndValidateKey(key), onFreed, isListening);
  }

  close(): Promise<void> {
    this.#isClosed = true;
    return Promise.resolve();
  }

  #lookup(
    find: () => Row | undefined,
    signal: AbortSignal | undefined,
  ): Promise<Answer<RawRecord | null>> {
    const run = (): RawRecord | null => {
      const row = find();
      return row === undefined ? null : { ...row, readAtMs: this.table.clock.now() };
    };
    return this.#perform({ name: "lookup", signal, run });
  }

  async #perform<T>(call: Call<T>): Promise<Answer<T>> {
    const { name, signal, run } = call;
    if (this.#isClosed) return failed("Aborted", "the backend is closed");
    const fault = Faults.take(this.faults, name);
    const delayMs = Faults.delayOf(this.faults, name);
    if (fault?.kind === "error" || (fault === undefined && delayMs === 0)) {
      // As from elsewhere.
      await Promise.resolve();
      if (signal?.aborted === true) return aborted();
      if (fault !== undefined) throw fault.error;
      return run();
    }
    return await this.#performLate(call, fault?.kind, delayMs);
  }

  /** An operation that comes late, or whose request or reply is lost. */
  #performLate<T>(
    { name, signal, limitMs, run, undo }: Call<T>,
    lost: "request lost" | "reply lost" | undefined,
    delayMs: number,
  ): Promise<Answer<T>> {
    const { clock } = this.table;
    const ownMs = this.settings.operationTimeoutMs;
    const timeoutMs = Math.min(limitMs ?? ownMs, ownMs);
    return new Promise((resolve, reject) => {
      let isOver = false;
      let done: { readonly value: T } | undefined;
      const end = (settle: () => void): void => {
        isOver = true;
        clock.clearTimeout(timer);
        stop();
        settle();
      };
      const giveUp = (failure: Failure): void => {
        end(() => resolve(failure));
        if (done !== undefined) undo?.(done.value);
      };
      const timer = clock.setTimeout(
        () =>
          giveUp(failed("NetworkTimeout", `Operation timed out after ${timeoutMs.toFixed(0)} ms`)),
        timeoutMs,
      );
      const stop =
        signal === undefined ? () => undefined : onAbort(signal, () => giveUp(aborted()));
      const arrive = (): void => {
        if (lost === "request lost" || this.#isClosed) return;
        if (Faults.isDown(this.faults)) {
          const fault = Faults.take(this.faults, name);
          if (!isOver && fault?.kind === "error") end(() => reject(fault.error));
          return;
        }
        try {
          const value = run();
          if (isOver) undo?.(value);
          else if (lost === undefined) end(() => resolve(value));
          else done = { value };
        } catch (error) {
          const failure = error instanceof Error ? error : new Error("the store failed");
          if (!isOver) end(() => reject(failure));
        }
      };
      clock.setTimeout(arrive, delayMs);
    });
  }
}

const OTHER_KIND =
  "due is a number where a text is stored as done for this key, or the other way round: neither comes before the other";

/** For which period something was done last, as the addon tells it. */
function textOf(mark: DoneMark | undefined): Text {
  const shown = mark && { due: shownDue(mark.due), doneAtMs: mark.doneAtMs };
  return { text: JSON.stringify(shown ?? null) };
}

function failed(code: LockErrorCode, message: string): Failure {
  return new Failure(code, message, []);
}

function aborted(): Failure {
  return failed("Aborted", "Operation aborted by signal");
}
