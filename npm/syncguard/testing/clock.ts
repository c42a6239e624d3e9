import { setImmediate } from "node:timers";
import type { Clock, Timer } from "../values/clock.js";
import { invalid } from "../options/validation.js";

/** Read when this module is loaded, so that fake timers in users' tests cannot stop this clock. */
const nextTurn = setImmediate;

type Entry = Timer & { readonly atMs: number; readonly run: () => void };

/**
 * A clock that stands still until it is told to go on. It changes nothing but the backends that are given it.
 *
 * @example
 * ```ts
 * import { createTestBackend, TestClock } from "syncguard/testing";
 *
 * const clock = new TestClock();
 * const backend = createTestBackend({ clock });
 * const held = await backend.lock("report:nightly", { ttlMs: 30_000 });
 * await clock.advance(30_000);
 * console.log(held.signal.aborted); // true: its time is over
 * ```
 */
export class TestClock implements Clock {
  #nowMs: number;
  #elapsedMs = 0;
  /** In the order in which they were set. */
  readonly #timers = new Set<Entry>();

  /**
   * A clock that stands at `nowMs`.
   *
   * @param nowMs - where it starts, in whole milliseconds since the Unix epoch; default: the time now
   * @throws LockError `InvalidArgument` for what is no whole number
   */
  constructor(nowMs = Date.now()) {
    if (!Number.isInteger(nowMs)) throw invalid("the time of a clock must be an integer");
    this.#nowMs = nowMs;
  }

  /**
   * Milliseconds since the Unix epoch.
   *
   * @example
   * ```ts
   * import { TestClock } from "syncguard/testing";
   *
   * const clock = new TestClock(1_000);
   * await clock.advance(500);
   * console.log(clock.now()); // 1500
   * ```
   */
  now(): number {
    return this.#nowMs;
  }

  /**
   * Milliseconds since the clock was made.
   *
   * @example
   * ```ts
   * import { TestClock } from "syncguard/testing";
   *
   * const clock = new TestClock();
   * await clock.advance(500);
   * console.log(clock.elapsed()); // 500
   * ```
   */
  elapsed(): number {
    return this.#elapsedMs;
  }

  /**
   * Goes on by `ms` milliseconds. What is due meanwhile happens in its order, each at its time, and whatever follows from it
   * has happened when the promise resolves.
   *
   * @param ms - a whole number, not negative
   * @throws LockError `InvalidArgument` for any other
   * @example
   * ```ts
   * import { createTestBackend, TestClock } from "syncguard/testing";
   *
   * const clock = new TestClock();
   * const backend = createTestBackend({ clock });
   * await backend.acquire({ key: "report:nightly", ttlMs: 30_000 });
   * await clock.advance(31_000); // a lock counts as held for one more second
   * console.log(await backend.isLocked({ key: "report:nightly" })); // false
   * ```
   */
  async advance(ms: number): Promise<void> {
    if (!(Number.isInteger(ms) && ms >= 0)) throw invalid("ms must be a non-negative integer");
    const endMs = this.#elapsedMs + ms;
    await settle();
    for (let next = this.#due(endMs); next !== undefined; next = this.#due(endMs)) {
      this.#timers.delete(next);
      this.#goTo(Math.max(next.atMs, this.#elapsedMs));
      next.run();
      await settle();
    }
    this.#goTo(endMs);
    await settle();
  }

  /**
   * Calls `run` once the clock has gone on by `ms`, in whole milliseconds as those of computers.
   *
   * @example
   * ```ts
   * import { TestClock } from "syncguard/testing";
   *
   * const clock = new TestClock();
   * clock.setTimeout(() => console.log("half a minute later"), 30_000);
   * await clock.advance(30_000);
   * ```
   */
  setTimeout(run: () => void, ms: number): Timer {
    const entry: Entry = { atMs: this.#elapsedMs + Math.ceil(Math.max(ms, 0)), run };
    this.#timers.add(entry);
    return entry;
  }

  /**
   * Forgets a timer that has not been due yet.
   *
   * @example
   * ```ts
   * import { TestClock } from "syncguard/testing";
   *
   * const clock = new TestClock();
   * const timer = clock.setTimeout(() => console.log("never"), 30_000);
   * clock.clearTimeout(timer);
   * ```
   */
  clearTimeout(timer: Timer | undefined): void {
    this.#timers.delete(timer as Entry);
  }

  #due(endMs: number): Entry | undefined {
    let first: Entry | undefined;
    for (const entry of this.#timers) {
      if (entry.atMs <= endMs && (first === undefined || entry.atMs < first.atMs)) first = entry;
    }
    return first;
  }

  #goTo(elapsedMs: number): void {
    this.#nowMs += elapsedMs - this.#elapsedMs;
    this.#elapsedMs = elapsedMs;
  }
}

/** Lets everything run that is ready to run. */
async function settle(): Promise<void> {
  await new Promise<void>((resolve) => {
    nextTurn(resolve);
  });
}
