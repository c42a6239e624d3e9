import {
  type AcquireResult,
  type BackendCapabilities,
  formatFence,
  generateLockId,
  type KeyOp,
  type LockBackendLike,
  type LockInfo,
  sanitizeLockInfo,
} from "syncguard/common";

export type AcquireArguments = KeyOp & { ttlMs: number };

export interface FakeCapabilities extends BackendCapabilities {
  supportsFencing: true;
  timeAuthority: "client";
}

export type FakeBackend = LockBackendLike<FakeCapabilities> & {
  /** The arguments of each acquire. */
  readonly acquired: AcquireArguments[];
  /** The arguments of each release. */
  readonly released: { lockId: string; signal?: AbortSignal | undefined }[];
  /** The keys that are held. */
  readonly held: Map<string, string>;
};

/** A backend as users write them: plain results, plain TypeScript. Methods can be replaced. */
export function fakeBackend(replace: Partial<LockBackendLike<FakeCapabilities>> = {}): FakeBackend {
  const held = new Map<string, string>();
  const acquired: AcquireArguments[] = [];
  const released: { lockId: string; signal?: AbortSignal | undefined }[] = [];
  const capabilities: FakeCapabilities = { supportsFencing: true, timeAuthority: "client" };
  let fences = 0;

  const keyOf = (lockId: string): string | undefined =>
    [...held].find(([, holder]) => holder === lockId)?.[0];
  const info = (key: string, lockId: string): LockInfo<FakeCapabilities> =>
    sanitizeLockInfo(
      { key, lockId, expiresAtMs: 2, acquiredAtMs: 1, fence: formatFence(fences) },
      capabilities,
    );

  const plain: LockBackendLike<FakeCapabilities> = {
    capabilities,
    acquire: async ({ key, ttlMs }): Promise<AcquireResult<FakeCapabilities>> => {
      if (held.has(key)) return { ok: false, reason: "locked" };
      const lockId = generateLockId();
      held.set(key, lockId);
      fences += 1;
      return { ok: true, lockId, expiresAtMs: Date.now() + ttlMs, fence: formatFence(fences) };
    },
    release: async ({ lockId }) => {
      const key = keyOf(lockId);
      if (key === undefined) return { ok: false };
      held.delete(key);
      return { ok: true };
    },
    extend: async ({ lockId, ttlMs }) =>
      keyOf(lockId) === undefined ? { ok: false } : { ok: true, expiresAtMs: Date.now() + ttlMs },
    isLocked: async ({ key }) => held.has(key),
    lookup: async (opts: { key: string } | { lockId: string }) => {
      const key = "key" in opts ? opts.key : keyOf(opts.lockId);
      const lockId = key === undefined ? undefined : held.get(key);
      return key === undefined || lockId === undefined ? null : info(key, lockId);
    },
  };
  const used = { ...plain, ...replace };
  return {
    ...used,
    acquired,
    released,
    held,
    acquire: (opts) => {
      acquired.push(opts);
      return used.acquire(opts);
    },
    release: (opts) => {
      released.push(opts);
      return used.release(opts);
    },
  };
}

/** A promise and the functions that settle it. */
export function deferred<T>() {
  let resolve!: (value: T) => void;
  let reject!: (error: unknown) => void;
  const promise = new Promise<T>((onResolve, onReject) => {
    resolve = onResolve;
    reject = onReject;
  });
  return { promise, resolve, reject };
}

/** What an attempt gives while somebody else holds the lock. */
export const LOCKED = { ok: false, reason: "locked" } as const;

/** What an attempt gives that takes the lock. */
export const grant = (lockId = "lock-id"): AcquireResult<FakeCapabilities> => ({
  ok: true,
  lockId,
  expiresAtMs: Date.now() + 5_000,
  fence: "000000000000001",
});

/** A backend whose attempts give these outcomes, the last one for ever. */
export function scripted(...outcomes: (AcquireResult<FakeCapabilities> | Error)[]): FakeBackend {
  let attempt = 0;
  return fakeBackend({
    acquire: async () => {
      const outcome = outcomes[Math.min(attempt, outcomes.length - 1)];
      attempt += 1;
      if (outcome instanceof Error || outcome === undefined) throw outcome;
      return outcome;
    },
  });
}
