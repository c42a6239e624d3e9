/** A fencing token: 15 decimal digits, zero-padded, so that comparing strings compares numbers. */
export type Fence = string;

/** 24 lower-case hexadecimal digits by which a key or a lock id can be recognised. Not secure: see `hashKey`. */
export type HashId = string;

/** What a backend can do. */
export interface BackendCapabilities {
  /** Whether each acquisition comes with a fencing token. */
  supportsFencing: boolean;
  /** Whose clock decides when a lock ends. */
  timeAuthority: "server" | "client";
}

/** The capabilities of a backend with fencing tokens. */
export interface FencingCapabilities extends BackendCapabilities {
  supportsFencing: true;
}

/** Names a lock by its key. */
export type KeyOp = Readonly<{ key: string; signal?: AbortSignal | undefined }>;

/** Names a lock by the id that its acquisition returned. */
export type LockOp = Readonly<{
  lockId: string;
  signal?: AbortSignal | undefined;
}>;

/** Looks up a lock by its key. */
export type KeyLookup = { key: string; signal?: AbortSignal | undefined };

/** Looks up a lock by its lock id. */
export type OwnershipLookup = {
  lockId: string;
  signal?: AbortSignal | undefined;
};

/** A granted lock. Times are milliseconds since the Unix epoch, on the backend's clock. */
export type AcquireOk<C extends BackendCapabilities> = {
  ok: true;
  lockId: string;
  expiresAtMs: number;
  // eslint-disable-next-line @typescript-eslint/no-empty-object-type -- adds nothing to the intersection
} & (C["supportsFencing"] extends true ? { fence: Fence } : {});

/** A granted lock, or `{ ok: false }` because somebody holds it. */
export type AcquireResult<C extends BackendCapabilities> =
  AcquireOk<C> | { ok: false; reason: "locked" };

/** Whether the lock was released; `{ ok: false }` if it was gone before. */
export type ReleaseResult = { ok: true } | { ok: false };

/** When the lock ends now; `{ ok: false }` if it was gone before. */
export type ExtendResult = { ok: true; expiresAtMs: number } | { ok: false };

/** A lock as lookups show it: hashes in place of the identifiers. */
export type LockInfo<C extends BackendCapabilities> = {
  /** `hashKey(key)` */
  keyHash: HashId;
  /** `hashKey(lockId)` */
  lockIdHash: HashId;
  /** Milliseconds since the Unix epoch. */
  expiresAtMs: number;
  /** Milliseconds since the Unix epoch. */
  acquiredAtMs: number;
} & (C["supportsFencing"] extends true ? { fence: Fence } : { fence?: Fence });

/** A lock with its raw identifiers. Sensitive: for debugging only. */
export type LockInfoDebug<C extends BackendCapabilities> = LockInfo<C> & {
  /** The key. */
  key: string;
  /** The lock id: whoever knows it can release the lock. */
  lockId: string;
  /** The label given by the `owner` option, if any. */
  owner?: string;
};

/**
 * A backend as every function of this package accepts it: a {@link LockBackend}, or a backend of your own whose `acquire`
 * returns plain results without the methods of a handle.
 */
export interface LockBackendLike<C extends BackendCapabilities = BackendCapabilities> {
  /** Tries once to take the lock for `ttlMs` milliseconds. */
  acquire: (opts: KeyOp & { ttlMs: number }) => Promise<AcquireResult<C>>;
  /** Frees the lock. Safe to repeat. */
  release: (opts: LockOp) => Promise<ReleaseResult>;
  /** Makes the lock end `ttlMs` milliseconds from now. Never revives one that has ended. */
  extend: (opts: LockOp & { ttlMs: number }) => Promise<ExtendResult>;
  /** Whether somebody holds the lock. */
  isLocked: (opts: KeyOp) => Promise<boolean>;
  /** The lock on a key, or `null`. For diagnostics, never a guard before a mutation. */
  lookup(opts: KeyLookup): Promise<LockInfo<C> | null>;
  /** The lock with that lock id, or `null`. For diagnostics, never a guard before a mutation. */
  lookup(opts: OwnershipLookup): Promise<LockInfo<C> | null>;
  lookup(opts: KeyLookup | OwnershipLookup): Promise<LockInfo<C> | null>;
  /** What this backend can do. */
  readonly capabilities: Readonly<C>;
}

/** The contract between a store of locks and this package. Use a backend of this package, or write your own. */
export interface LockBackend<
  C extends BackendCapabilities = BackendCapabilities,
> extends LockBackendLike<C> {
  /** Tries once to take the lock for `ttlMs` milliseconds. The result can be used with `await using`. */
  acquire: (opts: KeyOp & { ttlMs: number }) => Promise<DecoratedAcquireResult<C>>;
}

/**
 * Called when a release fails where nothing can be thrown: at the end of an `await using` block or of `lock()`.
 *
 * @param error - the error of the release; a thrown value that is not an `Error` is its `originalError`
 * @param context - raw identifiers, and where it happened
 */
export type OnReleaseError = (
  error: Error,
  context: { lockId: string; key: string; source: "disposal" },
) => void;

/** What a granted lock can do, and what becomes of it. The functions need no `this` and may be destructured. */
export interface DisposableLockHandle {
  /**
   * Frees the lock, at most once: later calls return `{ ok: false }` and do nothing. Throws the store's error. With a
   * signal that is already aborted it throws `Aborted`, which does not count as a call: the lock can still be released.
   */
  release: (signal?: AbortSignal) => Promise<ReleaseResult>;
  /** Makes the lock end `ttlMs` milliseconds from now. */
  extend: (ttlMs: number, signal?: AbortSignal) => Promise<ExtendResult>;
  /**
   * Frees the lock if it has not been released. Never throws: the error of a failed release goes to `onReleaseError`, even
   * if it comes after `disposeTimeoutMs`.
   */
  [Symbol.asyncDispose](): Promise<void>;
  /**
   * Aborted when the lock is lost, with a `LockError` of the code `LockLost` as its reason. Without `autoExtend` that is when
   * its time is over. A lock that was released is not lost.
   *
   * Every handle of this package has it, and it is not enumerable. Results without a lock have none, and those that a backend
   * of your own makes by itself need none.
   */
  readonly signal?: AbortSignal;
}

/**
 * A lock that is held: the result of an acquisition with the members of a handle. `extend` and heartbeats update its
 * `expiresAtMs`.
 */
export type AsyncLock<C extends BackendCapabilities = BackendCapabilities> = AcquireOk<C> &
  DisposableLockHandle;

/** What `backend.lock()` resolves to: an {@link AsyncLock} that surely has its signal. */
export type HeldLock<C extends BackendCapabilities = BackendCapabilities> = AsyncLock<C> & {
  readonly signal: AbortSignal;
};

/** An acquisition's result that can be used with `await using`. Without a lock the methods do nothing. */
export type DecoratedAcquireResult<C extends BackendCapabilities> =
  AsyncLock<C> | ({ ok: false; reason: "locked" } & DisposableLockHandle);

/** Whether and how a lock extends itself while it is held; `true` for the defaults. */
export type AutoExtend = true | AutoExtendOptions;

/** How a lock extends itself. Heartbeats that fail are tried again until the lock ends. */
export interface AutoExtendOptions {
  /** Milliseconds from one heartbeat to the next, less than the TTL. Default: a third of the TTL. */
  everyMs?: number | undefined;
  /** Milliseconds after which the lock is lost although it could be extended. Default: no limit. */
  maxMs?: number | undefined;
  /**
   * Milliseconds for which the event loop may hang: after that the lock is not extended until it turns again. Default
   * 30000.
   */
  maxStallMs?: number | undefined;
}

/** How long and how often to try. */
export interface AcquisitionOptions {
  /** Attempts after the first. Default 10. */
  maxRetries?: number | undefined;
  /** Milliseconds before the first retry. Default 100. */
  retryDelayMs?: number | undefined;
  /** Whether the wait doubles each time. Default `"exponential"`. */
  backoff?: "exponential" | "fixed" | undefined;
  /** How much of the wait is random: half of it, all of it or nothing. Default `"equal"`. */
  jitter?: "equal" | "full" | "none" | undefined;
  /** Milliseconds to wait in all. Default 5000. */
  timeoutMs?: number | undefined;
  /**
   * What ends the wait between two attempts: `"notify"`, the default, when the store tells that the lock was freed, and in
   * any case when the next retry is due; `"poll"` only the latter. An attempt that follows a message is not a retry.
   */
  wait?: "notify" | "poll" | undefined;
  /** Ends the waiting; has no effect once the lock is held. */
  signal?: AbortSignal | undefined;
}

/** Which lock `lock()` takes, and how. */
export interface LockConfig {
  /** Names what the lock protects: at most 512 bytes of UTF-8 after NFC normalisation. */
  key: string;
  /** Milliseconds after which the lock ends by itself. Default 30000. */
  ttlMs?: number | undefined;
  /** Cancels the waiting, and aborts the signal of the callback's handle. It does not affect the release. */
  signal?: AbortSignal | undefined;
  /** Extends the lock by itself while it is held. Default: it ends with its TTL. */
  autoExtend?: AutoExtend | undefined;
  /** Called when the release fails. A failed release never replaces what the callback returned or threw. */
  onReleaseError?: OnReleaseError | undefined;
  /** How long and how often to try. */
  acquisition?: AcquisitionOptions | undefined;
}

/** The handle that `lock()` passes to its callback. */
export type LockHandle<C extends BackendCapabilities = BackendCapabilities> =
  LockHandleMembers<C> & {
    /**
     * Aborted when the lock is lost, with a `LockError` of the code `LockLost` as its reason, and with `config.signal`, for its
     * reason. Without `autoExtend` the lock is lost when its time is over.
     */
    readonly signal: AbortSignal;
  };

/** What the handles of callbacks have in common. */
export type LockHandleMembers<C extends BackendCapabilities = BackendCapabilities> = {
  /** The key as given. */
  readonly key: string;
  /** Proof of ownership. */
  readonly lockId: string;
  /** When the lock ends, in milliseconds since the Unix epoch; updated by `extend` and by heartbeats. */
  readonly expiresAtMs: number;
  /** Makes the lock end `ttlMs` milliseconds from now. */
  readonly extend: (ttlMs: number, signal?: AbortSignal) => Promise<ExtendResult>;
} & (C["supportsFencing"] extends true ? { readonly fence: Fence } : { readonly fence?: Fence });

/** `lock()` bound to a backend. */
export type BoundLock<C extends BackendCapabilities = BackendCapabilities> = <T>(
  fn: (handle: LockHandle<C>) => Promise<T> | T,
  config: LockConfig & { acquisition?: AcquisitionOptions | undefined },
) => Promise<T>;

/** How `backend.lock()` takes the lock. */
export interface BackendLockOptions {
  /** Milliseconds after which the lock ends by itself. Default 30000. */
  ttlMs?: number | undefined;
  /** Cancels the waiting. */
  signal?: AbortSignal | undefined;
  /** Extends the lock by itself while it is held. Default: it ends with its TTL. */
  autoExtend?: AutoExtend | undefined;
  /** How long and how often to try. */
  acquisition?: AcquisitionOptions | undefined;
  /** Called when the release at disposal fails. Default: the backend's. */
  onReleaseError?: OnReleaseError | undefined;
  /** Milliseconds after which disposal aborts the release and stops waiting for it. Default: the backend's. */
  disposeTimeoutMs?: number | undefined;
  /** A label to store with the lock, at most 255 bytes of UTF-8; `getByKeyRaw` shows it. */
  owner?: string | undefined;
}

/** Options of every backend of this package. */
export interface CommonBackendOptions {
  /** Whether `isLocked()` deletes what expired more than two seconds ago. Default false. */
  cleanupInIsLocked?: boolean | undefined;
  /** Called when the release at the end of an `await using` block fails. */
  onReleaseError?: OnReleaseError | undefined;
  /** Milliseconds after which disposal aborts the release and stops waiting for it. Default: no limit of its own. */
  disposeTimeoutMs?: number | undefined;
}

/** A backend of this package: a {@link LockBackend} with more methods. */
export interface SyncGuardBackend<
  C extends BackendCapabilities = BackendCapabilities,
> extends LockBackend<C> {
  /** Tries once to take the lock for `ttlMs` milliseconds. The result can be used with `await using`. */
  acquire: (
    opts: KeyOp & {
      ttlMs: number;
      owner?: string | undefined;
      autoExtend?: AutoExtend | undefined;
    },
  ) => Promise<HeldLock<C> | Extract<DecoratedAcquireResult<C>, { ok: false }>>;
  /**
   * Waits for the lock and resolves once it is held.
   *
   * @throws LockError `AcquisitionTimeout` if others held it for too long
   */
  lock: (key: string, options?: BackendLockOptions) => Promise<HeldLock<C>>;
  /** Frees the lock, whoever holds it. For administrators: the holder is not notified. */
  forceRelease: (
    key: string,
    options?: { signal?: AbortSignal | undefined },
  ) => Promise<ReleaseResult>;
  /** Closes connections and files; safe to repeat. Without it, the process can still end. */
  close: () => Promise<void>;
  /** As `close()`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** An event of telemetry, which reports one operation, or the loss of a lock. */
export type LockEvent = {
  /** Which operation; `"lost"` when a lock was lost. */
  type: "acquire" | "release" | "extend" | "isLocked" | "lookup" | "lost";
  /** Whether it gave what was asked for: `"fail"` for contention, an absent lock, `false`, `null` and errors. */
  result: "ok" | "fail";
  /** `hashKey(key)`, when the operation has a key. */
  keyHash?: HashId;
  /** `hashKey(lockId)`, when the operation has a lock id. */
  lockIdHash?: HashId;
  /** Why an acquisition, release or extension did nothing, when known. */
  reason?: "locked" | "expired" | "not-found";
  /** How long `lock()` has waited until the end of this attempt to acquire, in milliseconds; only for its attempts. */
  waitMs?: number;
  /** How many attempts it has made, with this one. */
  attempts?: number;
  /** How many times it was told that the lock may be free. */
  wakeups?: number;
  /** Milliseconds for which the lock was held. Only for `"lost"` and for what releases a lock by its handle. */
  heldMs?: number;
  /** How many heartbeats have extended the lock. Only beside `heldMs`, for a lock that extends itself. */
  extends?: number;
  /** Whether the lock was lost before it was released, as its handle knew. Only beside `heldMs`. */
  lost?: boolean;
  /** The key; only if `includeRaw` allows. */
  key?: string;
  /** The lock id; only if `includeRaw` allows. */
  lockId?: string;
};

/** Options of `withTelemetry()`. */
export interface TelemetryOptions {
  /** Called for each operation. Not awaited; what it throws is ignored. */
  onEvent: (event: LockEvent) => void;
  /** Whether events carry raw identifiers. Default false; a predicate that throws means false. */
  includeRaw?: boolean | ((event: LockEvent) => boolean) | undefined;
}
