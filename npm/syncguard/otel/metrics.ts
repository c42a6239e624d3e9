import type { Histogram, Meter, MeterProvider } from "@opentelemetry/api";
import type { StoreWarnings } from "../watching/store-warnings.js";
import type { Grants } from "../holding/grants.js";
import type { Observation, Stream } from "../watching/events.js";
import { constants } from "../native/constants.js";
import { attributesOf, attributesOfBackend, operationOf } from "./outcome.js";

/** The name of the instrumentation scope. */
export const SCOPE = "syncguard";

/** Boundaries in seconds: a store's answer, a wait for others, and the time that work takes. */
const ANSWER_S = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];
const WAIT_S = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];
const HOLD_S = [0.001, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600];

/** The backends of one name whose locks are counted, for each name. */
type Counted = Map<string, Set<Pick<Grants, "held">>>;

/**
 * The backends whose locks a provider counts. They share one callback, because of several that tell the same instrument of the
 * same attributes, only the last one counts.
 */
const counted = new WeakMap<MeterProvider, Counted>();

/** Counts the locks that a backend holds, until the function that is returned is called. */
function countLocks(
  provider: MeterProvider,
  meter: Meter,
  backend: string,
  grants: Pick<Grants, "held">,
): () => void {
  let all = counted.get(provider);
  if (all === undefined) {
    const backends: Counted = new Map();
    counted.set(provider, (all = backends));
    const options = { description: "Locks that this process holds now", unit: "{lock}" };
    meter.createObservableUpDownCounter("syncguard.locks", options).addCallback((result) => {
      for (const [name, those] of backends) {
        const held = [...those].flatMap((backendGrants) => backendGrants.held());
        const count = held.reduce((sum, { keys }) => sum + keys.length, 0);
        result.observe(count, attributesOfBackend(name));
      }
    });
    countSlots(meter, backends);
  }
  const those = all.get(backend) ?? new Set();
  all.set(backend, those.add(grants));
  // The name stays: an SDK would go on to report the last count of what nobody tells of any more.
  return () => those.delete(grants);
}

/** Counts the slots among those locks, of backends that have held one. */
function countSlots(meter: Meter, backends: Counted): void {
  const options = { description: "Slots of keys that this process holds now", unit: "{slot}" };
  const reportedNames = new Set<string>();
  meter.createObservableUpDownCounter("syncguard.slots", options).addCallback((result) => {
    for (const [name, those] of backends) {
      const locks = [...those]
        .flatMap((backendGrants) => backendGrants.held())
        .flatMap((lease) => lease.left ?? []);
      const count = locks.filter(({ slot }) => slot !== null).length;
      if (count > 0) reportedNames.add(name);
      // Who uses none is not told of any; who has used one is told of 0.
      if (reportedNames.has(name)) result.observe(count, attributesOfBackend(name));
    }
  });
}

/** Counts what a store warns of, until the function that is returned is called. */
function countWarnings(meter: Meter, backend: string, warnings: StoreWarnings): () => void {
  const { name, ...options } = warnings.metric;
  const counter = meter.createCounter(name, options);
  return warnings.listen(() => counter.add(1, attributesOfBackend(backend)));
}

/** The instruments that each operation, wait and hold is recorded with. */
function createInstruments(meter: Meter) {
  const duration = (name: string, description: string, boundaries: number[]): Histogram =>
    meter.createHistogram(name, {
      description,
      unit: "s",
      advice: { explicitBucketBoundaries: boundaries },
    });
  return {
    operation: duration("syncguard.operation.duration", "Duration of operations on the store", ANSWER_S), // prettier-ignore
    wait: duration("syncguard.wait.duration", "Time that lock() waited until it had the lock or gave up", WAIT_S), // prettier-ignore
    hold: duration("syncguard.hold.duration", "Time that locks were held", HOLD_S),
    contention: meter.createCounter("syncguard.contention", {
      description: "Attempts that found the lock held by somebody",
      unit: "{attempt}",
    }),
    losses: meter.createCounter("syncguard.losses", {
      description: "Locks that were lost while they were held",
      unit: "{lock}",
    }),
    heartbeats: meter.createCounter("syncguard.heartbeats", {
      description: "Extensions by heartbeats, counted when the lock is released or lost",
      unit: "{extension}",
    }),
  };
}

/**
 * The metrics of one backend.
 *
 * @param grants - the locks that it holds; `undefined` if they are not known
 * @param warnings - hears of what the store warns of, where that can be
 */
export function createMetrics(
  provider: MeterProvider,
  backend: string,
  grants: Pick<Grants, "held"> | undefined,
  warnings: StoreWarnings | undefined,
): { tell: Stream["tell"]; stop: () => void } {
  const meter = provider.getMeter(SCOPE, constants.version);
  const { operation, wait, hold, contention, losses, heartbeats } = createInstruments(meter);
  const own = attributesOfBackend(backend);

  const recordHold = (seen: Observation, outcome: string): void => {
    if (seen.heldMs === undefined) return;
    hold.record(seen.heldMs / 1_000, { ...own, "syncguard.outcome": outcome });
    if (seen.extensions !== undefined && seen.extensions > 0) {
      heartbeats.add(seen.extensions, own);
    }
  };
  const contend = (attempts: number): void => {
    if (attempts > 0) contention.add(attempts, own);
  };
  const tell: Stream["tell"] = (seen) => {
    const attributes = attributesOf(seen, backend);
    const name = operationOf(seen);
    if (name !== undefined && seen.durationMs !== undefined) {
      const seconds = seen.durationMs / 1_000;
      operation.record(seconds, { ...attributes, "syncguard.operation": name });
    }
    switch (seen.type) {
      case "acquire":
        contend(seen.contended ?? (seen.reason === "locked" ? 1 : 0));
        break;
      case "release":
        // The time of one that was lost was counted then.
        if (seen.lost !== true) recordHold(seen, "released");
        break;
      case "lost":
        losses.add(1, own);
        recordHold(seen, "lost");
        break;
      case "wait":
        wait.record((seen.waitMs ?? 0) / 1_000, attributes);
        break;
      default:
        break;
    }
  };
  const stopLocks = grants && countLocks(provider, meter, backend, grants);
  const stopWarnings = warnings && countWarnings(meter, backend, warnings);
  const stop = (): void => {
    stopLocks?.();
    stopWarnings?.();
  };
  return { tell, stop };
}
