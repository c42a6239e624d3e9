import type { Histogram, Meter } from "@opentelemetry/api";
import type { Observation, Observer } from "../lock/observation.js";
import { attributesOf } from "./outcome.js";

/** Boundaries in seconds: a store's answer, a wait for others, and the time that work takes. */
const ANSWER_S = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];
const WAIT_S = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];
const HOLD_S = [0.001, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600];

/**
 * The metrics of one backend.
 *
 * @param countHeld - how many locks it holds; `undefined` if that is not known
 */
export function createMetrics(
  meter: Meter,
  backend: string,
  countHeld: (() => number) | undefined,
): { tell: Observer; stop: () => void } {
  const duration = (name: string, description: string, boundaries: number[]): Histogram =>
    meter.createHistogram(name, {
      description,
      unit: "s",
      advice: { explicitBucketBoundaries: boundaries },
    });
  const acquire = duration("syncguard.acquire.duration", "Duration of attempts to acquire a lock", ANSWER_S); // prettier-ignore
  const release = duration("syncguard.release.duration", "Duration of releases", ANSWER_S);
  const extend = duration("syncguard.extend.duration", "Duration of extensions by holders", ANSWER_S); // prettier-ignore
  const wait = duration("syncguard.wait.duration", "Time that lock() waited until it had the lock or gave up", WAIT_S); // prettier-ignore
  const hold = duration("syncguard.hold.duration", "Time that locks were held", HOLD_S);
  const contention = meter.createCounter("syncguard.contention", {
    description: "Attempts that found the lock held by somebody",
    unit: "{attempt}",
  });
  const lost = meter.createCounter("syncguard.lost", {
    description: "Locks that were lost while they were held",
    unit: "{lock}",
  });
  const heartbeats = meter.createCounter("syncguard.heartbeats", {
    description: "Extensions by heartbeats, counted when the lock is released or lost",
    unit: "{extension}",
  });
  const held = meter.createObservableUpDownCounter("syncguard.held", {
    description: "Locks that this process holds now",
    unit: "{lock}",
  });
  let isOver = false;
  const own = { "syncguard.backend": backend };
  const observeHeld: Parameters<typeof held.addCallback>[0] = (result) => {
    result.observe(isOver ? 0 : (countHeld?.() ?? 0), own);
  };
  if (countHeld !== undefined) held.addCallback(observeHeld);

  const recordHold = (seen: Observation, outcome: string): void => {
    if (seen.heldMs === undefined) return;
    hold.record(seen.heldMs / 1_000, { ...own, "syncguard.outcome": outcome });
    if (seen.extensions !== undefined && seen.extensions > 0) {
      heartbeats.add(seen.extensions, own);
    }
  };
  const tell: Observer = (seen) => {
    const attributes = attributesOf(seen, backend);
    const seconds = (seen.durationMs ?? 0) / 1_000;
    switch (seen.type) {
      case "acquire":
        acquire.record(seconds, attributes);
        if (seen.reason === "locked") contention.add(1, own);
        break;
      case "extend":
        extend.record(seconds, attributes);
        break;
      case "release":
        release.record(seconds, attributes);
        // The time of one that was lost was counted then.
        if (seen.lost !== true) recordHold(seen, "released");
        break;
      case "lost":
        lost.add(1, own);
        recordHold(seen, "lost");
        break;
      case "wait":
        wait.record((seen.waitMs ?? 0) / 1_000, attributes);
        break;
      case "isLocked":
      case "lookup":
        break;
    }
  };
  // The callback stays, because an SDK goes on to report the last value of one that was removed.
  const stop = (): void => {
    isOver = true;
    countHeld = undefined;
  };
  return { tell, stop };
}
