/** Acquires a lock: asks the store, and makes a handle of what it grants. */

import { LockError } from "../native/errors.js";
import {
  type Acquired,
  type AcquiredLock,
  type Locked,
  settle,
  type Text,
} from "../native/outcome.js";
import { checkAborted } from "../native/signal.js";
import type { Wait } from "../values/wait.js";
import { invalid } from "../options/validation.js";
import { namesOf, optionNames, warnOfUnknown } from "../options/names.js";
import {
  checkKey,
  checkTtlOfLock,
  LABEL_OPTIONS,
  readLabels,
  given,
  startingSignal,
} from "../values/arguments.js";
import { type HeartbeatOptions, readAutoExtend } from "../values/auto-extend.js";
import {
  addTarget,
  BESIDE_KEY,
  type BesideKey,
  givenKey,
  isBesideKey,
  type LockTarget,
  readTarget,
} from "../values/claims.js";
import type { BackendContext, StoreHeartbeats } from "./context.js";
import { TIME_TOLERANCE_MS } from "../values/defaults.js";
import { type Done, isAfter, storedDue } from "../values/due.js";
import { withWanted } from "../holding/grant.js";
import { createHandle, noLock } from "../holding/handle.js";
import { startHeartbeats } from "../holding/heartbeats.js";
import type { AcquireArguments, Asked, LeaseOperations } from "../holding/internals.js";
import { Lease } from "../holding/lease.js";
import { giveBack } from "../holding/held.js";
import type { BackendCapabilities, DecoratedAcquireResult, HeldLock } from "../values/types.js";
import { hashKey, logFenceWarning } from "../values/values.js";

const OPTIONS = optionNames("acquire()", [
  ...namesOf<Omit<AcquireArguments, keyof BesideKey>>({
    ...LABEL_OPTIONS,
    key: true,
    claims: true,
    ttlMs: true,
    signal: true,
    autoExtend: true,
  }),
  ...BESIDE_KEY,
]);

export type AcquireOutcome<C extends BackendCapabilities> =
  HeldLock<C> | Extract<DecoratedAcquireResult<C>, { ok: false }>;

const NOTHING: Asked = {};

/** Asks once for a lock. With a `wait`, waits until it is free. */
export async function acquire<C extends BackendCapabilities>(
  on: BackendContext,
  opts: AcquireArguments,
  asked: Asked = NOTHING,
): Promise<AcquireOutcome<C>> {
  const { ttlMs } = given(opts);
  const target = asked.target ?? targetOf(opts);
  const { key, claims } = target;
  const { wait, due } = asked;
  let hasBegun = false;
  let heartbeats: StoreHeartbeats | undefined;
  try {
    if (claims === undefined) checkKey(key);
    const { labels, autoExtend, signal } = readOptions(opts);
    on.grants.check();
    warnOfUnknown(opts, OPTIONS);
    on.grants.start();
    const startedMs = on.clock.elapsed();
    if (wait !== undefined) on.waiters.add(target, startedMs);
    hasBegun = true;
    if (autoExtend !== undefined) heartbeats = on.createHeartbeats?.(autoExtend);
    const details = { claims, labels, hold: heartbeats?.settings, due };
    const answer = await on.store.acquire(key, ttlMs, details, signal, wait);
    if (!("lockId" in answer)) {
      heartbeats?.stop();
      return refusalOf(settle(answer), target, asked.due) as AcquireOutcome<C>;
    }
    const attempt = { target, ttlMs, startedMs, signal, autoExtend, heartbeats, asked };
    return grant(on, attempt, answer) as AcquireOutcome<C>;
  } catch (error) {
    heartbeats?.stop();
    throw addTarget(hasBegun ? reasonOf(on, error, wait) : error, target);
  } finally {
    if (hasBegun) {
      if (wait !== undefined) on.waiters.remove(target);
      on.grants.end();
    }
  }
}

/** The options beside what is to be locked, checked. */
function readOptions(opts: AcquireArguments) {
  const { ttlMs, autoExtend, signal } = opts;
  checkTtlOfLock(ttlMs);
  return {
    labels: readLabels(opts),
    autoExtend: autoExtend === undefined ? undefined : readAutoExtend(autoExtend, ttlMs),
    signal: signal === undefined ? undefined : startingSignal(opts),
  };
}

/** The error of an acquisition. If the store has only ended the wait, the grants know why nobody may wait any more. */
function reasonOf({ grants }: BackendContext, error: unknown, wait: Wait | undefined): unknown {
  const isTurnedAway = wait !== undefined && (error as Partial<LockError>).code === "Aborted";
  return (isTurnedAway ? grants.refusal() : undefined) ?? error;
}

/** How a lock that was granted had been asked for. */
type Attempt = {
  readonly target: LockTarget;
  readonly ttlMs: number;
  readonly startedMs: number;
  readonly signal: AbortSignal | undefined;
  readonly autoExtend: HeartbeatOptions | undefined;
  /** The heartbeats, if the store sends them. */
  readonly heartbeats: StoreHeartbeats | undefined;
  readonly asked: Asked;
};

/** Makes a handle of what the store has granted. */
function grant(on: BackendContext, attempt: Attempt, granted: Acquired): object {
  const { clock, grants } = on;
  const { target, ttlMs, signal, autoExtend, heartbeats, asked } = attempt;
  const nowMs = clock.elapsed();
  // After a wait, the TTL counts from the last attempt and not from the beginning.
  const { lastMs } = asked.wait ?? {};
  const startedMs = lastMs === undefined ? attempt.startedMs : nowMs - lastMs;
  const terms = asked.terms === undefined ? on.terms : withWanted(on.terms, asked.terms);
  const lease = new Lease({
    key: target.key,
    lockId: granted.lockId,
    locks: locksOf(target, granted),
    due: asked.due,
    grantedMs: nowMs,
    endMs: startedMs + ttlMs,
    expiresAtMs: granted.expiresAtMs,
    lastsMs: ttlMs,
    terms,
  });
  grants.add(lease);
  if (signal?.aborted === true) {
    // The store granted the lock at the moment of the abort. A caller who has cancelled does not expect a lock.
    giveBack(lease, on.access(), on.terms.onReleaseError);
    checkAborted(signal);
  }
  heartbeats?.granted(lease);
  checkInTime(on, lease, attempt, nowMs - startedMs);
  if (granted.fenceNearLimit) logFenceWarning(granted.fence, hashKey(target.key));
  const handle = createHandle(on.access(), lease, granted.fence, terms, target.isSet);
  if (heartbeats === undefined && autoExtend !== undefined) {
    const { leases } = on;
    const extend: LeaseOperations["extend"] = (held, ms, ends) => leases.beat(held, ms, ends);
    startHeartbeats({ extend }, handle, lease, { ttlMs, startedMs, autoExtend });
  }
  if (grants.phase !== "granting") {
    // While releaseAll() runs, it releases this lock, too. Once it is over, nobody else would.
    if (grants.phase === "over") giveBack(lease, on.access(), on.terms.onReleaseError);
    grants.check();
  }
  lease.handOut();
  return handle;
}

/** Gives a lock back if its TTL was over when its grant was read, because this thread was blocked. */
function checkInTime(
  on: BackendContext,
  lease: Lease,
  { ttlMs, heartbeats }: Attempt,
  tookMs: number,
): void {
  const isOver =
    heartbeats === undefined
      ? // Nobody else gets even a very short lock within the tolerance. On Firestore only the core knows when its TTL began.
        on.capabilities.timeAuthority === "server" && tookMs >= Math.max(ttlMs, TIME_TOLERANCE_MS)
      : lease.isLost();
  if (!isOver) return;
  giveBack(lease, on.access(), on.terms.onReleaseError);
  throw new LockError(
    "NetworkTimeout",
    `the lock was granted too late: when its grant was read, its time of ${ttlMs} ms was over`,
  );
}

/** The result for whoever was not granted the lock. */
function refusalOf(answer: Locked | Text, target: LockTarget, due?: string): object {
  if ("text" in answer) {
    const done = JSON.parse(answer.text) as Done;
    const isLater = due !== undefined && isAfter(storedDue(done.due), storedDue(due));
    return { ...noLock(undefined), done: { ...done, isLater } };
  }
  return noLock(givenKey(target, answer.lockedKey), answer.busy);
}

/** Reads what the caller of `acquire()` asks for. */
function targetOf(opts: AcquireArguments): LockTarget {
  const { key, claims } = opts;
  if (claims === undefined || claims === null) {
    return isBesideKey(opts) ? readTarget(key, opts) : { key };
  }
  if ((key ?? undefined) !== undefined) throw invalid("key cannot be given beside claims");
  if (!Array.isArray(claims)) throw invalid("claims must be an array");
  return readTarget(claims, opts);
}

/** The granted locks, if anything else was asked for than one key alone. */
function locksOf(
  target: LockTarget,
  { locks, slot, lockId, fence }: Acquired,
): AcquiredLock[] | undefined {
  if (target.claims === undefined) return undefined;
  if (locks !== undefined) {
    return locks.map((lock) => {
      const key = givenKey(target, lock.key) ?? lock.key;
      return { ...lock, key, ...modeOf(target, key) };
    });
  }
  // The addon answers a single claim without a list.
  const { key } = target;
  return [{ key, slot: slot ?? null, ...modeOf(target, key), lockId, fence }];
}

/** The mode in which a key was asked for, if it is shared. */
function modeOf({ claims }: LockTarget, key: string): Pick<AcquiredLock, "mode"> | undefined {
  const claim = claims?.find((one) => one.key === key);
  return claim?.kind === "shared" ? { mode: "shared" } : undefined;
}
