/** What the types promise. Compiled, never run. */

import { expectTypeOf } from "vitest";
import {
  acquireHandle,
  type AcquireOk,
  type AcquireResult,
  type AcquisitionOptions,
  type AsyncLock,
  type AutoExtend,
  type AutoExtendOptions,
  BACKEND_DEFAULTS,
  BACKEND_LIMITS,
  type BackendCapabilities,
  type BackendLockOptions,
  type BoundLock,
  type Claim,
  type Claims,
  type ClosableLock,
  createSqliteBackend,
  decorateAcquireResult,
  type DisposableLockHandle,
  type DecoratedAcquireResult,
  type ExtendResult,
  type Fence,
  FENCE_THRESHOLDS,
  getById,
  getByKey,
  getByKeyRaw,
  hasFence,
  type HashId,
  type GrantedLock,
  type HeldLock,
  type HeldLocks,
  type HeldSlot,
  type KeyLookup,
  type KeyOp,
  lead,
  type Leadership,
  type LeadOptions,
  lock,
  LOCK_DEFAULTS,
  type LockBackend,
  type LockBackendLike,
  type LockConfig,
  LockError,
  type LockErrorCode,
  type LockEvent,
  type LockHandle,
  type LockInfo,
  type LockInfoDebug,
  type LockOp,
  type LocksHandle,
  type LocksOp,
  type OnLeadError,
  type OfSlot,
  type OnLost,
  type OnReleaseError,
  MAX_KEY_LENGTH_BYTES,
  type OwnershipLookup,
  owns,
  type ReleaseResult,
  RESERVE_BYTES,
  setDefaultBackend,
  type SyncGuardBackend,
  type TelemetryOptions,
  TIME_TOLERANCE_MS,
  withTelemetry,
} from "syncguard";
import {
  type BackendConfig,
  createAutoLock,
  createDisposableHandle,
  delay,
  formatFence,
  logFenceWarning,
  mapBackendObservation,
  mapFirestoreConditions,
  mapRedisScriptResult,
  mapToMutationResult,
  mergeAcquisitionConfig,
  mergeBackendConfig,
  type MutationCondition,
  type MutationReason,
  type MutationResult,
} from "syncguard/common";
import {
  createLock as createPostgresLock,
  type PostgresCapabilities,
  setupSchema,
} from "syncguard/postgres";
import { createLock as createRedisLock, type RedisCapabilities } from "syncguard/redis";
import { createLock, type SqliteCapabilities } from "syncguard/sqlite";

interface Fencing extends BackendCapabilities {
  supportsFencing: true;
  timeAuthority: "client";
}
interface Plain extends BackendCapabilities {
  supportsFencing: false;
  timeAuthority: "client";
}

// A backend of one's own is a plain object with the six members. Its results may be plain.
const plainResult: AcquireResult<Fencing> = { ok: false, reason: "locked" };
const busyResult: AcquireResult<Fencing> = { ...plainResult, retryAfterMs: 5, owner: "me" };
if (!busyResult.ok) console.log((busyResult.retryAfterMs ?? 0) + 1, busyResult.owner?.length);
const own = {
  capabilities: { supportsFencing: true, timeAuthority: "client" } as Fencing,
  acquire: async (opts: KeyOp & { ttlMs: number }) => (opts.ttlMs ? plainResult : plainResult),
  release: async (opts: LockOp) => ({ ok: opts.lockId === "" }) as ReleaseResult,
  extend: async () => ({ ok: true, expiresAtMs: 1 }) as ExtendResult,
  isLocked: async () => false,
  lookup: async (_: KeyLookup | OwnershipLookup): Promise<LockInfo<Fencing> | null> => null,
};
own satisfies LockBackendLike<Fencing>;
// @ts-expect-error its results cannot be disposed of
own satisfies LockBackend<Fencing>;
const decorated: LockBackend<Fencing> = {
  ...own,
  acquire: async (opts) => decorateAcquireResult(own, await own.acquire(opts), opts.key),
};
decorated satisfies LockBackendLike<Fencing>;
declare const plain: LockBackend<Plain>;
const sqlite = createSqliteBackend(":memory:");
const any: LockBackend = sqlite;

// Fences are there at compile time where the backend has them, and only there.
const result = await sqlite.acquire({ key: "k", ttlMs: 1 });
if (result.ok) {
  expectTypeOf(result.fence).toEqualTypeOf<Fence>();
  expectTypeOf(result.lockId).toBeString();
  expectTypeOf(result).toExtend<DisposableLockHandle>();
} else {
  expectTypeOf(result.reason).toEqualTypeOf<"locked">();
  // @ts-expect-error there is none without a lock
  void result.fence;
}
const plainly = await plain.acquire({ key: "k", ttlMs: 1 });
// @ts-expect-error this backend has no fences
if (plainly.ok) void plainly.fence;
const generic: AcquireResult<BackendCapabilities> = result;
if (hasFence(generic)) expectTypeOf(generic.fence).toEqualTypeOf<Fence>();

// Results of our backends can be disposed of; so can held locks.
{
  await using disposable = await sqlite.acquire({ key: "k", ttlMs: 1, owner: "me" });
  await using held = await sqlite.lock("k", { ttlMs: 5, acquisition: { timeoutMs: 5 } });
  await using handle = await acquireHandle(any, { key: "k", ttlMs: 1 });
  await using extending = await sqlite.acquire({ key: "k", ttlMs: 5, autoExtend: true });
  if (extending.ok) expectTypeOf(extending.signal).toEqualTypeOf<AbortSignal>();
  expectTypeOf(held).toExtend<HeldLock<SqliteCapabilities>>();
  expectTypeOf<Parameters<typeof sqlite.lock>[1]>().toExtend<
    { autoExtend?: AutoExtend | undefined } | undefined
  >();
  const isLong: boolean = Date.now() > 0;
  await using _maybe = await sqlite.lock("k", { autoExtend: isLong });
  await using _limited = await sqlite.lock("k", {
    autoExtend: { everyMs: 1, maxMs: 2, maxStallMs: 3 } satisfies AutoExtendOptions,
  });
  expectTypeOf(held.fence).toEqualTypeOf<Fence>();
  expectTypeOf(handle.ok).toBeBoolean();
  expectTypeOf(disposable.release).returns.resolves.toEqualTypeOf<ReleaseResult>();
}
expectTypeOf(sqlite.forceRelease).parameter(0).toBeString();

// What a program passes on without naming the capabilities has fences, as every backend of this package does.
const mine: SyncGuardBackend = sqlite;
expectTypeOf((await mine.lock("k")).fence).toEqualTypeOf<Fence>();
expectTypeOf<HeldLock["fence"]>().toEqualTypeOf<Fence>();
expectTypeOf<LockHandle["fence"]>().toEqualTypeOf<Fence>();
const work: (handle: LockHandle) => void = () => undefined;
await lock(sqlite, work, { key: "k" });
// @ts-expect-error this one has none
const _fenceless: SyncGuardBackend = {} as SyncGuardBackend<Plain>;
{
  // On anything that is typed as a backend.
  await using disposable = await any.acquire({ key: "k", ttlMs: 1 });
  await using granted = await decorated.acquire({ key: "k", ttlMs: 1 });
  expectTypeOf(disposable).toEqualTypeOf<DecoratedAcquireResult<BackendCapabilities>>();
  if (granted.ok) expectTypeOf(granted).toExtend<AsyncLock<Fencing>>();
  expectTypeOf<Awaited<ReturnType<LockBackend<Fencing>["acquire"]>>>().toEqualTypeOf<
    DecoratedAcquireResult<Fencing>
  >();
}

// A held lock is the grant with its methods.
expectTypeOf<AsyncLock<Fencing>>().toEqualTypeOf<AcquireOk<Fencing> & DisposableLockHandle>();
expectTypeOf<HeldLock<Fencing>>().toExtend<AsyncLock<Fencing>>();
expectTypeOf<HeldLock<Fencing>["signal"]>().toEqualTypeOf<AbortSignal>();
expectTypeOf<HeldLock<Fencing>["key"]>().toBeString();
declare const granted: AcquireOk<Fencing>;
const mutations = {
  release: async () => ({ ok: true }) as const,
  extend: async () => ({ ok: true, expiresAtMs: 1 }) as const,
};
createDisposableHandle(mutations, granted, "k") satisfies AsyncLock;
expectTypeOf(createDisposableHandle(own, granted, "k", undefined, 5)).toEqualTypeOf<
  AsyncLock<Fencing>
>();
expectTypeOf(createDisposableHandle(own, plainResult as AcquireResult<Fencing>, "k")).toEqualTypeOf<
  DecoratedAcquireResult<Fencing>
>();

// lead(): the term is known where the backend has fences; what the function returns is of no interest.
expectTypeOf(
  sqlite.lead("k", async ({ term, fence, signal, key }) => {
    expectTypeOf(term).toBeNumber();
    expectTypeOf(fence).toEqualTypeOf<Fence>();
    expectTypeOf(signal).toEqualTypeOf<AbortSignal>();
    expectTypeOf(key).toBeString();
    return await Promise.resolve(42);
  }),
).resolves.toBeVoid();
const leadOptions: LeadOptions = {
  ttlMs: 1,
  owner: "me",
  autoExtend: { maxMs: 5 },
  onLost: () => 1,
};
await lead("k", ({ term }) => expectTypeOf(term).toBeNumber(), leadOptions);
await lead(own, "k", ({ term }) => expectTypeOf(term).toBeNumber(), {
  onError: (error, { source }) => {
    expectTypeOf(error).toBeUnknown();
    expectTypeOf(source).toEqualTypeOf<"term" | "campaign">();
  },
});
await lead(plain, "k", ({ term }) => expectTypeOf(term).toEqualTypeOf<number | undefined>());
expectTypeOf<Leadership["term"]>().toBeNumber();
expectTypeOf<OnLeadError>().toBeCallableWith(new Error(), { key: "k", source: "term" });
// @ts-expect-error a leader extends its lock
void sqlite.lead("k", () => undefined, { autoExtend: false });

// lock(): the result is the function's, the handle is the backend's.
expectTypeOf(lock(own, () => 42, { key: "k" })).resolves.toEqualTypeOf<number>();
expectTypeOf(lock(async () => "text", { key: "k" })).resolves.toEqualTypeOf<string>();
expectTypeOf(lock<string>(own, async () => "text", { key: "k" })).resolves.toBeString();
await lock(sqlite, ({ fence, extend, signal }) => [fence satisfies Fence, extend(1), signal], {
  key: "k",
});
await lock(({ fence }) => fence satisfies Fence, { key: "k" });
await lock(({ signal }) => signal satisfies AbortSignal, { key: "k", autoExtend: true });
await lock(
  plain,
  (handle) => {
    expectTypeOf(handle.fence).toEqualTypeOf<Fence | undefined>();
    // @ts-expect-error read only
    handle.lockId = "other";
  },
  { key: "k" },
);
const onReleaseError: OnReleaseError = (error, { key, lockId, source }) => {
  void [error.message, key, lockId, source satisfies "disposal"];
};
const acquisition: AcquisitionOptions = { backoff: "fixed", jitter: "none", maxRetries: 1 };
const onLost: OnLost = (error, { key, lockId }) => void [error.code, key, lockId];
const ends = { onReleaseError, onLost, disposeTimeoutMs: 1, owner: "me", autoExtend: false };
await lock(own, () => undefined, { key: "k", throwIfLost: true });
// @ts-expect-error a held lock has no function that could be rejected
void sqlite.lock("k", { throwIfLost: true });
const config: LockConfig = { key: "k", ttlMs: 1, acquisition, ...ends };
await lock(own, () => undefined, config);
// @ts-expect-error the key is needed
await lock(own, () => undefined, {});
// @ts-expect-error no such backoff
await lock(own, () => undefined, { key: "k", acquisition: { backoff: "linear" } });

// Bound forms.
expectTypeOf(createAutoLock(own)).toEqualTypeOf<BoundLock<Fencing>>();
expectTypeOf(createLock("file", { cleanupInIsLocked: true })).toExtend<BoundLock>();
expectTypeOf(createLock("file")(() => 1, { key: "k" })).resolves.toEqualTypeOf<number>();
expectTypeOf(createRedisLock).returns.toEqualTypeOf<ClosableLock<RedisCapabilities>>();
expectTypeOf(createPostgresLock).returns.toEqualTypeOf<ClosableLock<PostgresCapabilities>>();
{
  await using closed = createLock("file");
  closed satisfies BoundLock;
  expectTypeOf(closed.close).returns.resolves.toBeVoid();
}
expectTypeOf(setupSchema).returns.resolves.toBeVoid();

// Wrappers are what they wrap.
const telemetry: TelemetryOptions = {
  onEvent: (event: LockEvent) => void event.keyHash,
  includeRaw: (event) => event.type === "acquire",
};
expectTypeOf(withTelemetry(sqlite, telemetry)).toEqualTypeOf<
  SyncGuardBackend<SqliteCapabilities>
>();
expectTypeOf(withTelemetry(own, telemetry)).toEqualTypeOf<LockBackend<Fencing>>();
expectTypeOf(
  decorateAcquireResult(own, plainResult, "k", onReleaseError, 5),
).toExtend<DisposableLockHandle>();

// Several keys, and slots.
declare const ids: LocksOp;
expectTypeOf(
  sqlite.lock(["a", { key: "b", slots: 5, take: 2 }]),
).resolves.toEqualTypeOf<HeldLocks>();
expectTypeOf(sqlite.lock({ key: "b", slots: 5, take: 2 })).resolves.toEqualTypeOf<HeldLocks>();
expectTypeOf(sqlite.lock({ key: "b", slots: 5 }, { minHoldMs: 5 })).resolves.toEqualTypeOf<
  HeldSlot<SqliteCapabilities>
>();
expectTypeOf(sqlite.lock("b", { slots: 5, minHoldMs: 5 })).resolves.toEqualTypeOf<
  HeldSlot<SqliteCapabilities>
>();
expectTypeOf(mine.lock("b", { slots: 5 })).resolves.toEqualTypeOf<HeldSlot>();
const triedSlot = await sqlite.acquire({ key: "b", slots: 5, ttlMs: 1 });
if (triedSlot.ok) expectTypeOf(triedSlot).toEqualTypeOf<HeldSlot<SqliteCapabilities>>();
await sqlite.tryLock("b", ({ slot }) => slot.toFixed(), { slots: 5, throwIfLost: true });
const beside: OfSlot<BackendLockOptions> = { slots: 5, ttlMs: 1 };
expectTypeOf(sqlite.lock("b", beside)).resolves.toExtend<HeldSlot>();
// @ts-expect-error without slots there is no number of one
void (await sqlite.lock("b", { ttlMs: 1 })).slot;
// @ts-expect-error slots belongs into the claim
void sqlite.lock({ key: "b", slots: 5 }, { slots: 5 });
// @ts-expect-error nothing is done once by several
void sqlite.once("b", { due: 1, slots: 5 }, () => 1);
// @ts-expect-error and there is one leader
void sqlite.lead("b", () => 1, { slots: 5 });
expectTypeOf<HeldSlot>().toExtend<HeldLock>();
expectTypeOf<HeldSlot["slot"]>().toBeNumber();
expectTypeOf<HeldLocks>().toExtend<DisposableLockHandle>();
expectTypeOf<HeldLocks["fences"]>().toEqualTypeOf<ReadonlyMap<string, Fence>>();
expectTypeOf<HeldLocks["locks"]>().toEqualTypeOf<readonly GrantedLock[]>();
expectTypeOf<HeldLocks["signal"]>().toEqualTypeOf<AbortSignal>();
// @ts-expect-error several locks have several fences
expectTypeOf<HeldLocks["fence"]>().toBeString();
// @ts-expect-error and several lock ids
expectTypeOf<HeldLocks["lockId"]>().toBeString();
expectTypeOf<Claims>().toEqualTypeOf<readonly (string | Claim)[]>();
const attempted = await sqlite.acquire({ claims: ["a", "b"], ttlMs: 1, autoExtend: true });
if (attempted.ok) expectTypeOf(attempted).toEqualTypeOf<HeldLocks>();
else expectTypeOf(attempted.key).toEqualTypeOf<string | undefined>();
expectTypeOf(sqlite.release(ids)).resolves.toEqualTypeOf<ReleaseResult>();
expectTypeOf(sqlite.extend({ ...ids, ttlMs: 1 })).resolves.toEqualTypeOf<ExtendResult>();
await lock(
  sqlite,
  (handle) => {
    expectTypeOf(handle).toEqualTypeOf<LocksHandle>();
    // @ts-expect-error which of them?
    return handle.fence as unknown;
  },
  { key: ["a", "b"] },
);
await lock(({ slot, fence }) => expectTypeOf([slot, fence]).toEqualTypeOf<(number | Fence)[]>(), {
  key: { key: "a", slots: 5 },
  minHoldMs: 5,
});
await createLock()(({ fences }) => fences.get("a"), { key: { key: "a", slots: 5, take: 2 } });
// @ts-expect-error a claim needs a key
await sqlite.lock([{ slots: 5 }]);
// @ts-expect-error no number
await sqlite.lock({ key: "a", slots: "5" });
// @ts-expect-error one lock id or several
await sqlite.release({});

// Diagnostics.
expectTypeOf(getByKey(own, "k")).resolves.toEqualTypeOf<LockInfo<Fencing> | null>();
expectTypeOf(getById(own, "id")).resolves.toEqualTypeOf<LockInfo<Fencing> | null>();
expectTypeOf(owns(own, "id")).resolves.toBeBoolean();
expectTypeOf(acquireHandle(own, { key: "k", ttlMs: 1 })).resolves.toEqualTypeOf<
  DecoratedAcquireResult<Fencing>
>();
expectTypeOf(getByKey(sqlite, "k")).resolves.toEqualTypeOf<LockInfo<SqliteCapabilities> | null>();
const raw = await getByKeyRaw(sqlite, "k", { signal: AbortSignal.timeout(1) });
expectTypeOf(raw).toEqualTypeOf<LockInfoDebug<SqliteCapabilities> | null>();
expectTypeOf(raw?.owner).toEqualTypeOf<string | undefined>();
expectTypeOf<LockInfo<Fencing>["fence"]>().toEqualTypeOf<Fence>();
expectTypeOf<LockInfo<Fencing>["keyHash"]>().toEqualTypeOf<HashId>();
// @ts-expect-error a lookup names one thing
await sqlite.lookup({});

// Errors.
const error = new LockError("Internal", "message", { key: "k", cause: 1 });
expectTypeOf(error.context?.key).toEqualTypeOf<string | undefined>();
expectTypeOf(error.code).toEqualTypeOf<LockErrorCode>();
error.code = "Aborted";
// @ts-expect-error no such code
new LockError("Oops");

// Constants are known to the digit.
expectTypeOf(TIME_TOLERANCE_MS).toEqualTypeOf<1000>();
expectTypeOf(MAX_KEY_LENGTH_BYTES).toEqualTypeOf<512>();
expectTypeOf(BACKEND_DEFAULTS).toEqualTypeOf<Readonly<{ ttlMs: 30_000 }>>();
expectTypeOf(LOCK_DEFAULTS).toEqualTypeOf<
  Readonly<{
    maxRetries: 10;
    retryDelayMs: 100;
    timeoutMs: 5_000;
    backoff: "exponential";
    jitter: "equal";
  }>
>();
expectTypeOf(FENCE_THRESHOLDS).toEqualTypeOf<
  Readonly<{ MAX: "900000000000000"; WARN: "090000000000000" }>
>();
expectTypeOf(BACKEND_LIMITS).toEqualTypeOf<
  Readonly<{ REDIS: 1000; POSTGRES: 1700; FIRESTORE: 1500 }>
>();
expectTypeOf(RESERVE_BYTES).toEqualTypeOf<Readonly<{ REDIS: 26; POSTGRES: 0; FIRESTORE: 0 }>>();

// The rest.
setDefaultBackend(own);
// @ts-expect-error the default backend must have fences
setDefaultBackend(plain);

expectTypeOf(formatFence).parameter(0).toEqualTypeOf<number | bigint>();
expectTypeOf(mapToMutationResult("succeeded")).toEqualTypeOf<MutationResult>();
expectTypeOf<MutationResult>().toEqualTypeOf<
  { ok: true } | { ok: false; reason: MutationReason }
>();
expectTypeOf<MutationReason>().toEqualTypeOf<"expired" | "not-found">();
const state = { documentExists: true, ownershipValid: true, isLive: true };
for (const condition of [
  mapBackendObservation(1),
  mapBackendObservation(state),
  mapRedisScriptResult(1),
  mapFirestoreConditions(state),
]) {
  expectTypeOf(condition).toEqualTypeOf<MutationCondition>();
}
expectTypeOf(mergeAcquisitionConfig().timeoutMs).toBeNumber();
expectTypeOf(mergeAcquisitionConfig().signal).toEqualTypeOf<AbortSignal | undefined>();
expectTypeOf(mergeBackendConfig({} satisfies BackendConfig)).toEqualTypeOf<{ ttlMs: number }>();
expectTypeOf(delay(1)).resolves.toBeVoid();
logFenceWarning("000000000000001", "k");
logFenceWarning(1, "k");
expectTypeOf<AcquireOk<Plain>>().toExtend<{ ok: true; lockId: string; expiresAtMs: number }>();
