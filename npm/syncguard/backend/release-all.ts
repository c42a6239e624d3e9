/** Gives back all locks of a backend, before the process ends. */

import { addContext, LockError } from "../native/errors.js";
import { checkObject, invalid, LONGEST_TIMER_MS } from "../options/validation.js";
import { optionNames, refuseUnknown } from "../options/names.js";
import { systemClock, type Timer } from "../values/clock.js";
import type { Grants } from "../holding/grants.js";
import type { Lease } from "../holding/lease.js";
import { accessTo, internalsOf } from "../holding/internals.js";
import { releaseBy } from "../holding/held.js";
import { contextOf } from "../holding/together.js";
import type { LockBackend, ReleaseAllOptions, ReleaseAllResult } from "../values/types.js";

const OPTIONS = optionNames("releaseAll()", ["timeoutMs"]);
const TIMEOUT_MS = 5_000;
/** How many releases are under way at once. */
const AT_ONCE = 256;

/** Creates the `releaseAll` method of the backend that `self` returns. */
export function createReleaseAll(
  self: () => Pick<LockBackend, "release" | "extend">,
): (options?: ReleaseAllOptions) => Promise<ReleaseAllResult> {
  let running: Promise<ReleaseAllResult> | undefined;
  return async (optionsOrNull) => {
    const options = optionsOrNull ?? {};
    checkObject(options, "options");
    refuseUnknown(options, OPTIONS);
    const timeoutMs = options.timeoutMs ?? TIMEOUT_MS;
    if (typeof timeoutMs !== "number" || !(timeoutMs > 0)) {
      throw invalid("timeoutMs must be a positive number");
    }
    // Two signals of the system may come at once. The second call joins the first.
    running ??= releaseAll(self(), timeoutMs).finally(() => {
      running = undefined;
    });
    return await running;
  };
}

async function releaseAll(
  backend: Pick<LockBackend, "release" | "extend">,
  timeoutMs: number,
): Promise<ReleaseAllResult> {
  const { grants, clock = systemClock } = internalsOf(backend) ?? {};
  const result: ReleaseAllResult = { released: 0, gone: 0, failed: [] };
  if (grants === undefined) return result;
  const access = accessTo(backend);
  grants.refuse();

  const controller = new AbortController();
  /** The locks whose release was started and is not answered yet. */
  const unanswered = new Set<Lease>();
  /** The errors of failed releases, by lock id. */
  const failed = new Map<string, LockError>();
  /** The locks that others were releasing already. */
  const elsewhere = new Set<Lease>();
  /** The locks that were not there, perhaps because others have released them. */
  const notThere = new Set<Lease>();
  let timer: Timer | undefined;
  const timeout = new Promise<void>((resolve) => {
    timer = clock.setTimeout(resolve, Math.min(timeoutMs, LONGEST_TIMER_MS));
  });
  const release = async (lease: Lease): Promise<void> => {
    if (grants.get(lease.lockIds[0] as string) !== lease) {
      elsewhere.add(lease);
      return;
    }
    elsewhere.delete(lease);
    unanswered.add(lease);
    try {
      const { ok } = await releaseBy(access, lease, { signal: controller.signal });
      if (!unanswered.has(lease)) return;
      if (ok) result.released += 1;
      else notThere.add(lease);
    } catch (error) {
      if (unanswered.has(lease)) failed.set(lease.lockId, failureOf(lease, error));
    } finally {
      unanswered.delete(lease);
    }
  };
  try {
    const isInTime = await Promise.race([
      releaseEach(grants, release, ({ lockId }) => failed.has(lockId), controller.signal),
      timeout.then(() => false),
    ]);
    if (!isInTime) {
      const left = [...elsewhere].filter(({ state }) => state !== "released" && state !== "gone");
      for (const lease of [...unanswered, ...left, ...grants.held()]) {
        if (!failed.has(lease.lockId)) failed.set(lease.lockId, tooLate(lease, timeoutMs));
      }
      unanswered.clear();
    }
  } finally {
    clock.clearTimeout(timer);
    grants.phase = "over";
    controller.abort();
  }
  for (const lease of new Set([...elsewhere, ...notThere])) {
    if (lease.state === "released") result.released += 1;
    else if (lease.state === "gone" || notThere.has(lease)) result.gone += 1;
  }
  result.failed.push(...failed.values());
  return result;
}

/** Releases every lock, even those that are granted meanwhile. `false` if `signal` was aborted before the end. */
async function releaseEach(
  grants: Grants,
  release: (lease: Lease) => Promise<void>,
  hasFailed: (lease: Lease) => boolean,
  signal: AbortSignal,
): Promise<boolean> {
  for (;;) {
    const locks = grants.held().filter((lease) => !hasFailed(lease));
    // All are given up first, so that whoever works under a lock hears of it before anybody else can get the lock.
    for (const lease of locks) lease.giveUp("the lock was released by releaseAll()");
    const next = async (): Promise<void> => {
      for (let lease = locks.pop(); lease !== undefined; lease = locks.pop()) {
        if (signal.aborted) return;
        await release(lease);
      }
    };
    const hadLocks = locks.length > 0;
    await Promise.all(Array.from({ length: Math.min(AT_ONCE, locks.length) }, next));
    if (signal.aborted) return false;
    // Meanwhile, acquisitions that were under way may have been granted, and releases that others have started may have failed.
    await grants.idle();
    if (!hadLocks) return true;
  }
}

function failureOf(lease: Lease, error: unknown): LockError {
  const context = contextOf(lease, undefined);
  if (error instanceof LockError) {
    return addContext(error, context.key, context.lockId, context) as LockError;
  }
  return new LockError("Internal", "the release failed with something that is no LockError", {
    ...context,
    cause: error,
  });
}

function tooLate(lease: Lease, timeoutMs: number): LockError {
  return new LockError(
    "NetworkTimeout",
    `the store has not answered the release within the ${timeoutMs} ms of releaseAll(): if it was not done, the lock ends with its TTL`,
    contextOf(lease, undefined),
  );
}
