/** Tells observers of a backend's operations. */

import type { Clock } from "../values/clock.js";
import type { Done } from "../values/due.js";
import type { Stream } from "../watching/events.js";
import { mutated, observer, type Report } from "../watching/observer.js";
import type { Operations } from "../holding/internals.js";
import type { BackendCapabilities } from "../values/types.js";

/**
 * Wraps the operations of a backend, so that observers hear of each.
 *
 * @param waits - whether `acquire` waits by itself. Whoever asks it to wait tells of the wait in the end
 */
export function observe<C extends BackendCapabilities>(
  operations: Operations<C>,
  stream: Stream,
  clock: Clock,
  waits: () => boolean,
): Operations<C> {
  const observing = observer(stream, clock);
  // These closures are not inside the functions that choose them: V8 would allocate what they refer to even when nobody hears.
  const acquire: Operations<C>["acquire"] = (opts, asked) =>
    observing("acquire", opts, () => operations.acquire(opts, asked), acquired, asked);
  const release: Operations<C>["release"] = (opts) =>
    observing("release", opts, () => operations.release(opts), mutated);
  return {
    acquire: (opts, asked) =>
      stream.hears("acquire") && !(asked?.wait !== undefined && waits())
        ? acquire(opts, asked)
        : operations.acquire(opts, asked),
    release: (opts) => (stream.hears("release") ? release(opts) : operations.release(opts)),
    extend: (opts) =>
      stream.hears("extend")
        ? observing("extend", opts, () => operations.extend(opts), mutated)
        : operations.extend(opts),
    isLocked: (opts) =>
      stream.hears("isLocked")
        ? observing("isLocked", opts, () => operations.isLocked(opts), found)
        : operations.isLocked(opts),
    lookup: (opts) =>
      stream.hears("lookup")
        ? observing("lookup", opts, () => operations.lookup(opts), found)
        : operations.lookup(opts),
    forceRelease: (key, options) =>
      stream.hears("forceRelease")
        ? observing("forceRelease", { key }, () => operations.forceRelease(key, options), mutated)
        : operations.forceRelease(key, options),
  };
}

function acquired(result: { ok: boolean; lockId?: string; done?: Done }): Report {
  if (result?.ok) return { result: "ok", lockId: result.lockId };
  const { done } = result ?? {};
  if (done === undefined) return { result: "fail", reason: "locked" };
  return { result: "fail", reason: done.isLater ? "ahead" : "done" };
}

function found(result: unknown): Report {
  return { result: result ? "ok" : "fail" };
}
