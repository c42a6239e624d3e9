/** One test backend's way to a table of locks. */

import type { LockStore } from "../lock/backend.js";
import { watchSignals } from "../lock/cancellation.js";
import { askUntilHeld, type Locked as Polled, type Watch } from "../lock/polling.js";
import { LockError, type LockErrorCode } from "../native/errors.js";
import type { ClaimSettings } from "../native/exports.js";
import {
  type Absence,
  type Acquired,
  Failure,
  type Gone,
  type Locked,
  type RawRecord,
  settle,
} from "../native/outcome.js";
import type { Wanted } from "../native/store.js";
import { FENCE_THRESHOLDS } from "../lock/defaults.js";
import { normalizeAndValidateKey } from "../lock/values.js";
import { onAbort } from "../native/signal.js";
import type { Wait } from "../native/wait.js";
import { Faults, type FaultyOperation } from "./faults.js";
import { type Obstacle, type Row, SLOT_MARK, type Table } from "./table.js";

type Settings = { operationTimeoutMs: number; cleanupInIsLocked: boolean };
type Answer<T> = T | Failure;
type Granted = Acquired & { readonly ok: true; readonly rows: readonly Row[] };
type Found = Granted | (Polled & Locked);
type AskedOfTable = {
  readonly claims: readonly ClaimSettings[];
  readonly ttlMs: number;
  readonly labels: Wanted["labels"];
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
    wanted: Wanted,
    signal: AbortSignal | undefined,
    wait: Wait | undefined,
  ): Promise<Answer<Acquired | Locked>> {
    const { clock } = this.table;
    const claims = wanted.claims ?? [{ key }];
    const asked = { claims, ttlMs, labels: wanted.labels, isSet: wanted.claims !== undefined };
    if (wait === undefined) return await this.#ask(asked, signal);
    const cancellation = watchSignals(signal, this.#refusal.signal, key);
    /** What stood in the way. */
    let obstacle = claims[0]?.key ?? key;
    const ask = async (limitMs: number): Promise<Found> => {
      const startedMs = clock.elapsed();
      const found = settle(await this.#ask(asked, cancellation?.signal, limitMs));
      if (found.ok) wait.lastMs = clock.elapsed() - startedMs;
      else obstacle = found.lockedKey ?? key;
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
        close: () => watches.forEach((one) => one.close()),
      };
    };
    try {
      return await askUntilHeld<Granted>({ key, clock, wait, cancellation, ask, watch });
    } catch (error) {
      if (!(error instanceof LockError) || error.code !== "AcquisitionTimeout") throw error;
      // As an outcome, so that the error has the stack of whoever waited.
      return failed(error.code, error.message);
    } finally {
      cancellation?.stop();
    }
  }

  refuseWaiters(): void {
    this.#refusal.abort();
  }

  /** One attempt. */
  async #ask(
    { claims, ttlMs, labels, isSet }: AskedOfTable,
    signal: AbortSignal | undefined,
    limitMs?: number,
  ): Promise<Answer<Found>> {
    const done = await this.#perform<Granted["rows"] | Obstacle>({
      name: "acquire",
      signal,
      limitMs,
      run: () => this.table.acquire(claims, ttlMs, labels),
      undo: (granted) => {
        if ("freeInMs" in granted) return;
        for (const { lockId } of granted) this.table.release(lockId);
      },
    });
    if (done instanceof Failure) return done;
    if ("freeInMs" in done) {
      return { ok: false, freeInMs: done.freeInMs, lockedKey: isSet ? done.key : undefined };
    }
    const [first] = done as readonly [Row];
    const granted: Granted = {
      ok: true,
      rows: done,
      lockId: done.map(({ lockId }) => lockId).join(),
      fence: first.fence,
      expiresAtMs: first.expiresAtMs,
      fenceNearLimit: done.some(({ fence }) => fence > FENCE_THRESHOLDS.WARN),
    };
    if (!isSet) return granted;
    const locks = done.map(({ key, lockId, fence }) => {
      const [base = "", slot] = key.split(SLOT_MARK);
      return {
        key: base,
        stored: key,
        slot: slot === undefined ? null : Number(slot),
        lockId,
        fence,
      };
    });
    return { ...granted, locks };
  }

  release(
    lockId: string,
    signal?: AbortSignal,
  ): Promise<Answer<true | readonly boolean[] | Absence>> {
    const run = (): true | readonly boolean[] | Absence => {
      const [one, ...others] = lockId.split(",");
      const found = this.table.release(one as string);
      if (others.length === 0) return found;
      return [found, ...others.map((other) => this.table.release(other))].map((is) => is === true);
    };
    return this.#perform({ name: "release", signal, run });
  }

  extend(lockId: string, ttlMs: number, signal?: AbortSignal): Promise<Answer<number | Gone>> {
    return this.#perform({
      name: "extend",
      signal,
      run: () => this.table.extend(lockId.split(","), ttlMs),
    });
  }

  isLocked(given: string, signal?: AbortSignal): Promise<Answer<boolean>> {
    return this.#perform({
      name: "isLocked",
      signal,
      run: () => {
        const key = normalizeAndValidateKey(given);
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

function failed(code: LockErrorCode, message: string): Failure {
  return new Failure(code, message, []);
}

function aborted(): Failure {
  return failed("Aborted", "Operation aborted by signal");
}
