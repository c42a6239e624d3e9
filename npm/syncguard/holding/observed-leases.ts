/** Tells observers what holders do with their locks. */

import type { Clock } from "../values/clock.js";
import { type Stream, subjectOfKeys } from "../watching/events.js";
import { mutated, observer, type Report } from "../watching/observer.js";
import type { ReleaseResult } from "../values/types.js";
import type { LeaseOperations } from "./internals.js";

export function observeLeases(
  leases: LeaseOperations,
  stream: Stream,
  clock: Clock,
): LeaseOperations {
  const observing = observer(stream, clock);
  // These closures are not inside the functions that choose them: V8 would allocate what they refer to even when nobody hears.
  const release: LeaseOperations["release"] = (lease, how) => {
    const before = lease.report();
    const released = (result: ReleaseResult): Report => ({
      ...mutated(result),
      ...before,
      ...(lease.loss && { lost: true }),
      ...(lease.isSet && subjectOfKeys(lease.keys)),
    });
    return observing("release", lease.ids, () => leases.release(lease, how), released);
  };
  const extend: LeaseOperations["extend"] = (lease, ttlMs, signal) =>
    observing("extend", lease.ids, () => leases.extend(lease, ttlMs, signal), mutated);
  return {
    release: (lease, how) =>
      stream.hears("release") ? release(lease, how) : leases.release(lease, how),
    extend: (lease, ttlMs, signal) =>
      stream.hears("extend") ? extend(lease, ttlMs, signal) : leases.extend(lease, ttlMs, signal),
  };
}
