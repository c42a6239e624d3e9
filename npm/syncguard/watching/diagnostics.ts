import type { StoredLabels } from "../native/outcome.js";
import type {
  BackendCapabilities,
  Fence,
  LockBackendLike,
  LockInfo,
  LockInfoDebug,
} from "../values/types.js";
import { optionNames, warnOfUnknown } from "../options/names.js";
import { hashKey } from "../values/values.js";

/** The same symbol in every copy of this module. */
const RAW_DATA: unique symbol = Symbol.for("syncguard.rawData") as never;

/** The raw identifiers, which lookups hide. */
export type RawIdentifiers = StoredLabels & {
  /** The key. */
  key: string;
  /** The lock id: whoever knows it can release the lock. */
  lockId: string;
  /** The time on the store's clock at the lookup, in milliseconds since the Unix epoch. */
  readAtMs?: number;
  /** Whether the key is shared: it is the lock of one who shares it, or found by the key, that of all who do. */
  isShared?: boolean;
};

/** A lock as a store keeps it. */
export type RawLockData = {
  /** The key. */
  key: string;
  /** The lock id: whoever knows it can release the lock. */
  lockId: string;
  /** When the lock ends, in milliseconds since the Unix epoch. */
  expiresAtMs: number;
  /** When the lock was granted, in milliseconds since the Unix epoch. */
  acquiredAtMs: number;
  /** The fencing token, if the store has them. */
  fence?: Fence | undefined;
};

/** Options of the lookups. */
export type LookupOptions = {
  /** Cancels the lookup, which is then rejected with `Aborted`. */
  signal?: AbortSignal | undefined;
};

/**
 * The lock on `key`, or `null`. Shows hashes, not identifiers.
 *
 * @throws LockError `InvalidArgument` for what is no key; `Aborted` if the signal came first; or the store's error
 * @example
 * ```ts
 * import { getByKey } from "syncguard";
 *
 * const info = await getByKey(backend, "report:nightly");
 * if (info !== null) console.log("held until", new Date(info.expiresAtMs), "under fence", info.fence);
 * ```
 */
export async function getByKey<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  key: string,
  opts?: LookupOptions,
): Promise<LockInfo<C> | null> {
  return await backend.lookup({ key, signal: signalOf(opts) });
}

/**
 * The lock with that lock id, or `null`. Shows hashes, not identifiers.
 *
 * @throws LockError `InvalidArgument` for what is no lock id; `Aborted` if the signal came first; or the store's error
 * @example
 * ```ts
 * import { getById } from "syncguard";
 *
 * const info = await getById(backend, held.lockId);
 * console.log(info === null ? "gone" : `held until ${new Date(info.expiresAtMs).toISOString()}`);
 * ```
 */
export async function getById<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  lockId: string,
  opts?: LookupOptions,
): Promise<LockInfo<C> | null> {
  return await backend.lookup({ lockId, signal: signalOf(opts) });
}

/**
 * The lock on `key` with its raw identifiers, or `null`. Sensitive: for debugging only.
 *
 * @throws LockError `InvalidArgument` for what is no key; `Aborted` if the signal came first; or the store's error
 * @example
 * ```ts
 * import { getByKeyRaw } from "syncguard";
 *
 * const info = await getByKeyRaw(backend, "report:nightly");
 * console.log("held by", info?.owner ?? "nobody");
 * ```
 */
export async function getByKeyRaw<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  key: string,
  opts?: LookupOptions,
): Promise<LockInfoDebug<C> | null> {
  const info = await backend.lookup({ key, signal: signalOf(opts) });
  return info && withRawData(info, key, "[backend does not provide raw lockId]");
}

/**
 * The lock with that lock id and its raw identifiers, or `null`. Sensitive: for debugging only.
 *
 * @throws LockError `InvalidArgument` for what is no lock id; `Aborted` if the signal came first; or the store's error
 * @example
 * ```ts
 * import { getByIdRaw } from "syncguard";
 *
 * const info = await getByIdRaw(backend, held.lockId);
 * console.log(info?.key);
 * ```
 */
export async function getByIdRaw<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  lockId: string,
  opts?: LookupOptions,
): Promise<LockInfoDebug<C> | null> {
  const info = await backend.lookup({ lockId, signal: signalOf(opts) });
  return info && withRawData(info, "[backend does not provide raw key]", lockId);
}

/**
 * Whether the lock with that lock id is held now.
 *
 * For diagnostics only: by the time you act on the answer, it may be out of date. `release` and `extend` check the
 * ownership themselves.
 *
 * @throws LockError `InvalidArgument` for what is no lock id, or the store's error
 * @example
 * ```ts
 * import { owns } from "syncguard";
 *
 * if (!(await owns(backend, held.lockId))) console.warn("the lock has ended");
 * ```
 */
export async function owns<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  lockId: string,
): Promise<boolean> {
  return Boolean(await backend.lookup({ lockId }));
}

/**
 * The part of a lock that a lookup may show: hashes in place of identifiers, and the fence if the backend has fences.
 *
 * @param rawData - the lock as the store keeps it
 * @param capabilities - those of the backend, which say whether there is a fence
 * @example
 * ```ts
 * import { generateLockId, sanitizeLockInfo } from "syncguard";
 *
 * const row = { key: "report:nightly", lockId: generateLockId(), acquiredAtMs: 0, expiresAtMs: 30_000 };
 * const info = sanitizeLockInfo(row, { supportsFencing: false, timeAuthority: "server" });
 * console.log(info.keyHash, info.expiresAtMs);
 * ```
 */
export function sanitizeLockInfo<C extends BackendCapabilities>(
  rawData: RawLockData,
  capabilities: Readonly<C>,
): LockInfo<C> {
  const info: LockInfo<BackendCapabilities> = {
    keyHash: hashKey(rawData.key),
    lockIdHash: hashKey(rawData.lockId),
    expiresAtMs: rawData.expiresAtMs,
    acquiredAtMs: rawData.acquiredAtMs,
  };
  if (capabilities.supportsFencing && rawData.fence !== undefined) info.fence = rawData.fence;
  return info as LockInfo<C>;
}

/**
 * Attaches the raw identifiers to `info`, visible only to `getByKeyRaw` and `getByIdRaw`.
 *
 * @returns `info` itself
 * @example
 * ```ts
 * import { attachRawData, type RawLockData, sanitizeLockInfo } from "syncguard/common";
 *
 * // What the lookup of a backend of your own gives for a row of its store:
 * function shown(row: RawLockData) {
 *   const info = sanitizeLockInfo(row, { supportsFencing: true, timeAuthority: "server" });
 *   return attachRawData(info, { key: row.key, lockId: row.lockId });
 * }
 * ```
 */
export function attachRawData<Info extends object>(info: Info, raw: RawIdentifiers): Info {
  return Object.defineProperty(info, RAW_DATA, { value: raw, configurable: true });
}

const OPTIONS = optionNames("a lookup", ["signal"]);

function signalOf(opts: LookupOptions | null | undefined): AbortSignal | undefined {
  if (typeof opts === "object" && opts !== null) warnOfUnknown(opts, OPTIONS);
  return opts?.signal;
}

/** What {@link attachRawData} attached to `info`, if anything. */
export function rawData(info: object): Partial<RawIdentifiers> | undefined {
  return (info as { [RAW_DATA]?: Partial<RawIdentifiers> })[RAW_DATA];
}

function withRawData<C extends BackendCapabilities>(
  info: LockInfo<C>,
  key: string,
  lockId: string,
): LockInfoDebug<C> {
  const debug: LockInfoDebug<C> & RawIdentifiers = { ...info, key, lockId, ...rawData(info) };
  delete debug.readAtMs;
  return debug;
}
