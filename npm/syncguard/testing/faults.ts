import { BACKEND_DEFAULTS } from "../values/defaults.js";
import { LockError, type LockErrorCode } from "../native/errors.js";
import { invalid } from "../options/validation.js";

/** The operations of a backend that can fail; waiting for a lock consists of `acquire`. Heartbeats are `extend`. */
export type FaultyOperation =
  "acquire" | "release" | "extend" | "isLocked" | "lookup" | "forceRelease";

const OPERATIONS: readonly FaultyOperation[] = [
  "acquire",
  "release",
  "extend",
  "isLocked",
  "lookup",
  "forceRelease",
];

/** What happens to one operation. */
export type Fault =
  | { readonly kind: "error"; readonly error: LockError }
  | { readonly kind: "request lost" }
  | { readonly kind: "reply lost" };

/** The locks of the store, as far as faults change them. */
export interface FaultTargets {
  steal(key: string, ttlMs: number): { lockId: string; fence: string };
  expire(key: string): boolean;
  lose(key: string): boolean;
  cameUp(): void;
}

/** Makes the operations of one test backend fail, and takes locks away from their holders. */
export class Faults {
  readonly #next = new Map<FaultyOperation, Fault[]>();
  readonly #delays = new Map<FaultyOperation, number>();
  readonly #targets: FaultTargets;
  #down: (() => LockError) | undefined;

  /** @internal */
  constructor(targets: FaultTargets) {
    this.#targets = targets;
  }

  /**
   * Makes the next `times` operations of that kind fail, without effect on the store.
   *
   * @param error - what they are rejected with; default `ServiceUnavailable`
   * @param times - how many; default 1
   * @throws LockError `InvalidArgument` for an operation or a number that there is not
   * @example
   * ```ts
   * import { createTestBackend } from "syncguard/testing";
   *
   * const backend = createTestBackend();
   * backend.faults.failNext("release", "NetworkTimeout", 2);
   * ```
   */
  failNext(
    operation: FaultyOperation,
    error: LockError | LockErrorCode = "ServiceUnavailable",
    times = 1,
  ): void {
    this.#add(operation, times, () => ({ kind: "error", error: toError(error) }));
  }

  /**
   * Loses the next `times` requests of that kind: nothing happens in the store, and the operation ends with `NetworkTimeout`.
   *
   * @param times - how many; default 1
   * @throws LockError `InvalidArgument` for an operation or a number that there is not
   * @example
   * ```ts
   * import { createTestBackend } from "syncguard/testing";
   *
   * const backend = createTestBackend();
   * backend.faults.loseRequest("extend");
   * ```
   */
  loseRequest(operation: FaultyOperation, times = 1): void {
    this.#add(operation, times, () => ({ kind: "request lost" }));
  }

  /**
   * Loses the next `times` replies of that kind: the store does what it is asked, and the operation ends with
   * `NetworkTimeout`. An acquisition is then undone, as on every backend.
   *
   * @param times - how many; default 1
   * @throws LockError `InvalidArgument` for an operation or a number that there is not
   * @example
   * ```ts
   * import { createTestBackend } from "syncguard/testing";
   *
   * const backend = createTestBackend();
   * backend.faults.loseReply("acquire");
   * ```
   */
  loseReply(operation: FaultyOperation, times = 1): void {
    this.#add(operation, times, () => ({ kind: "reply lost" }));
  }

  /**
   * Makes each operation, or each of that kind, reach the store `ms` milliseconds later; 0 ends that.
   *
   * @throws LockError `InvalidArgument` for an operation that there is not, or if `ms` is negative or no number
   * @example
   * ```ts
   * import { createTestBackend } from "syncguard/testing";
   *
   * const backend = createTestBackend();
   * backend.faults.delay(200); // a slow network
   * backend.faults.delay(2_000, "release");
   * ```
   */
  delay(ms: number, operation?: FaultyOperation): void {
    if (!(ms >= 0 && ms < Infinity)) throw invalid("ms must be a non-negative number");
    for (const each of operation === undefined ? OPERATIONS : [checked(operation)]) {
      this.#delays.set(each, ms);
    }
  }

  /**
   * Makes every operation fail, and waiters hear nothing, until {@link comeUp}.
   *
   * @param error - what operations are rejected with; default `ServiceUnavailable`
   * @example
   * ```ts
   * import { createTestBackend } from "syncguard/testing";
   *
   * const backend = createTestBackend();
   * backend.faults.goDown();
   * await backend.isLocked({ key: "job" }).catch((error) => console.log(error.code));
   * ```
   */
  goDown(error: LockError | LockErrorCode = "ServiceUnavailable"): void {
    this.#down = () => toError(error);
  }

  /**
   * Ends {@link goDown}; waiters hear of that.
   *
   * @example
   * ```ts
   * import { createTestBackend } from "syncguard/testing";
   *
   * const backend = createTestBackend();
   * backend.faults.goDown();
   * const waiting = backend.lock("job");
   * backend.faults.comeUp();
   * await using held = await waiting;
   * ```
   */
  comeUp(): void {
    if (this.#down === undefined) return;
    this.#down = undefined;
    this.#targets.cameUp();
  }

  /**
   * Ends all faults; those that have happened stay.
   *
   * @example
   * ```ts
   * import { createTestBackend } from "syncguard/testing";
   *
   * const backend = createTestBackend();
   * backend.faults.delay(200);
   * backend.faults.clear();
   * ```
   */
  clear(): void {
    this.#next.clear();
    this.#delays.clear();
    this.comeUp();
  }

  /**
   * Gives the lock on `key` to another holder, who need not be there: whoever has it hears of that as from a real store, when
   * the lock is extended, by its holder or by a heartbeat.
   *
   * @param ttlMs - milliseconds after which the other's lock ends; default 30000
   * @returns the other's lock id and fence
   * @throws LockError `InvalidArgument` for what is no key or no TTL
   * @example
   * ```ts
   * import { createTestBackend } from "syncguard/testing";
   *
   * const backend = createTestBackend();
   * const held = await backend.lock("job");
   * const other = backend.faults.steal("job");
   * console.log(other.fence > held.fence); // true
   * console.log(await held.extend(30_000)); // { ok: false }
   * ```
   */
  steal(
    key: string,
    ttlMs: number = BACKEND_DEFAULTS.ttlMs,
  ): {
    /** The id of the other's lock, which can release it. */
    lockId: string;
    /** The fencing token of the other's lock. */
    fence: string;
  } {
    return this.#targets.steal(key, ttlMs);
  }

  /**
   * Ends the time of the lock on `key`, as if its holder had been paused; `false` if nobody has it.
   *
   * @throws LockError `InvalidArgument` for what is no key
   * @example
   * ```ts
   * import { createTestBackend } from "syncguard/testing";
   *
   * const backend = createTestBackend();
   * const held = await backend.lock("job");
   * backend.faults.expire("job");
   * console.log(await held.release()); // { ok: false }
   * ```
   */
  expire(key: string): boolean {
    return this.#targets.expire(key);
  }

  /**
   * Takes the lock on `key` away, and aborts its holder's `signal` at once; `false` if this backend does not hold it.
   *
   * @throws LockError `InvalidArgument` for what is no key
   * @example
   * ```ts
   * import { createTestBackend } from "syncguard/testing";
   *
   * const backend = createTestBackend();
   * const held = await backend.lock("job");
   * backend.faults.lose("job");
   * console.log(held.signal.aborted); // true
   * ```
   */
  lose(key: string): boolean {
    return this.#targets.lose(key);
  }

  /** @internal */
  static take(faults: Faults, operation: FaultyOperation): Fault | undefined {
    if (faults.#down !== undefined) return { kind: "error", error: faults.#down() };
    return faults.#next.get(operation)?.shift();
  }

  /** @internal */
  static delayOf(faults: Faults, operation: FaultyOperation): number {
    return faults.#delays.get(operation) ?? 0;
  }

  /** @internal */
  static isDown(faults: Faults): boolean {
    return faults.#down !== undefined;
  }

  #add(operation: FaultyOperation, times: number, create: () => Fault): void {
    checked(operation);
    if (!(Number.isInteger(times) && times > 0)) throw invalid("times must be a positive integer");
    const faults = this.#next.get(operation) ?? [];
    for (let count = 0; count < times; count += 1) faults.push(create());
    this.#next.set(operation, faults);
  }
}

/** The faults of a test backend. */
export type TestFaults = Faults;

function checked(operation: FaultyOperation): FaultyOperation {
  if (!OPERATIONS.includes(operation)) {
    throw invalid(`operation must be one of ${OPERATIONS.join(", ")}`);
  }
  return operation;
}

/** An error of its own for each operation, unless the test gave one. */
function toError(error: LockError | LockErrorCode): LockError {
  return error instanceof LockError
    ? error
    : new LockError(error, `${error}, as the test wants it`);
}
