/** HeartbeatOptions for backends that do not send them by themselves, on JavaScript's timers. The core does the same for its own. */

import type { HeartbeatOptions } from "./auto-extend.js";
import { extendOn } from "./internals.js";
import type { Lease } from "./lease.js";
import { goneLock } from "./mutation.js";
import { callAt } from "./timers.js";
import type { LockBackend } from "./types.js";

/** A try is this part of the time left after the one before. */
const RETRIES = 4;
/** The shortest pause between two tries. */
const SHORTEST_PAUSE_MS = 10;

/**
 * Extends a lock until it is released or lost.
 *
 * There is no limit for a hanging event loop: while it hangs, these timers do not run either.
 *
 * @param handle - shows until when it is held
 * @param startedMs - when its acquisition was started, by `clock.elapsed()`
 */
export function startHeartbeats(
  backend: Pick<LockBackend, "extend">,
  handle: { expiresAtMs: number },
  lease: Lease,
  ttlMs: number,
  startedMs: number,
  { everyMs, maxMs }: HeartbeatOptions,
): void {
  const { clock } = lease;
  const limitMs = startedMs + maxMs;
  let endMs = Math.min(startedMs + ttlMs, limitMs);
  let failure: unknown;
  /** Stop the timers of the next heartbeat and of the end. */
  let stopBeat = (): void => undefined;
  let stopEnd = (): void => undefined;
  /** Cancels the extension that is on its way. */
  let running: AbortController | undefined;
  /** Whether the holder has extended the lock meanwhile: the backend may have done either first. */
  let crossed = false;
  let isOver = false;

  /** Whether the lock lasts for as long as it may already; TTLs are whole milliseconds. */
  const isFinal = (): boolean => limitMs - endMs < 1;

  const lose = (): void => {
    if (failure !== undefined) {
      const why = failure instanceof Error ? `: ${failure.message}` : "";
      lease.lose(`the lock was lost: it could not be extended before its end${why}`, failure);
    } else if (isFinal()) {
      lease.lose("the lock was lost: it has been held for as long as autoExtend allows");
    } else {
      lease.lose("the lock was lost: its end passed before it could be extended");
    }
  };

  /** Sets both timers for a lock that ends at `endMs`. */
  const arm = (): void => {
    stopEnd();
    stopEnd = callAt(clock, endMs, lose);
    stopBeat();
    if (running === undefined && !isFinal())
      stopBeat = callAt(clock, endMs - (ttlMs - everyMs), send);
  };

  const send = (): void => {
    const sentMs = clock.elapsed();
    // This timer may run before that of the end when the process was stopped meanwhile.
    if (sentMs >= endMs) {
      lose();
      return;
    }
    const wantedMs = Math.min(ttlMs, Math.floor(limitMs - sentMs));
    if (wantedMs >= 1) void extend(wantedMs, sentMs);
  };

  const extend = async (wantedMs: number, sentMs: number): Promise<void> => {
    const controller = new AbortController();
    running = controller;
    crossed = false;
    try {
      const result = await extendOn(backend, {
        ...lease.ids,
        ttlMs: wantedMs,
        signal: controller.signal,
      });
      if (isOver) return;
      running = undefined;
      if (!result.ok) {
        lease.lostInStore(goneLock(result));
        return;
      }
      failure = undefined;
      const extendedMs = Math.min(sentMs + wantedMs, limitMs);
      endMs = crossed ? Math.min(extendedMs, endMs) : extendedMs;
      lease.beat(result.expiresAtMs);
      arm();
    } catch (error) {
      if (isOver) return;
      running = undefined;
      failure = error;
      const pauseMs = ((endMs - clock.elapsed()) / RETRIES) * (0.75 + Math.random() / 2);
      stopBeat = callAt(clock, clock.elapsed() + Math.max(pauseMs, SHORTEST_PAUSE_MS), send);
    }
  };

  lease.extendedBy({
    moved: (movedMs) => {
      crossed = running !== undefined;
      endMs = Math.min(crossed ? Math.min(endMs, movedMs) : movedMs, limitMs);
      arm();
    },
    stop: () => {
      isOver = true;
      stopBeat();
      stopEnd();
      running?.abort();
    },
  });
  lease.follow(handle);
  arm();
}
