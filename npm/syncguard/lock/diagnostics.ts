import type {
  BackendCapabilities,
  Fence,
  LockBackendLike,
  LockInfo,
  LockInfoDebug,
} from "./types.js";
import { hashKey } from "./values.js";

/** The same symbol in every copy of this module. */
const RAW_DATA: unique symbol = Symbol.for("syncguard.rawData") as never;

/** The raw identifiers, which lookups hide. */
export type RawIdentifiers = {
  key: string;
  lockId: string;
  owner?: string;
  /** The time on the store's clock at the lookup, in milliseconds since the Unix epoch. */
  readAtMs?: number;
};

/** A lock as a store keeps it. */
export type RawLockData = {
  key: string;
  lockId: string;
  expiresAtMs: number;
  acquiredAtMs: number;
  fence?: Fence | undefined;
};

/** Options of the lookups. */
export type LookupOptions = { signal?: AbortSignal | undefined };

/** The lock on `key`, or `null`. Shows hashes, not identifiers. */
export async function getByKey<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  key: string,
  opts?: LookupOptions,
): Promise<LockInfo<C> | null> {
  return await backend.lookup({ key, signal: opts?.signal });
}

/** The lock with that lock id, or `null`. Shows hashes, not identifiers. */
export async function getById<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  lockId: string,
  opts?: LookupOptions,
): Promise<LockInfo<C> | null> {
  return await backend.lookup({ lockId, signal: opts?.signal });
}

/** The lock on `key` with its raw identifiers, or `null`. Sensitive: for debugging only. */
export async function getByKeyRaw<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  key: string,
  opts?: LookupOptions,
): Promise<LockInfoDebug<C> | null> {
  const info = await backend.lookup({ key, signal: opts?.signal });
  return info && withRawData(info, key, "[backend does not provide raw lockId]");
}

/** The lock with that lock id and its raw identifiers, or `null`. Sensitive: for debugging only. */
export async function getByIdRaw<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  lockId: string,
  opts?: LookupOptions,
): Promise<LockInfoDebug<C> | null> {
  const info = await backend.lookup({ lockId, signal: opts?.signal });
  return info && withRawData(info, "[backend does not provide raw key]", lockId);
}

/**
 * Whether the lock with that lock id is held now.
 *
 * For diagnostics only: by the time you act on the answer, it may be out of date. `release` and `extend` check the
 * ownership themselves.
 */
export async function owns<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  lockId: string,
): Promise<boolean> {
  return Boolean(await backend.lookup({ lockId }));
}

/** The part of a lock that a lookup may show: hashes in place of identifiers, and the fence if the backend has fences. */
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

/** Attaches the raw identifiers to `info`, visible only to `getByKeyRaw` and `getByIdRaw`. */
export function attachRawData<Info extends object>(info: Info, raw: RawIdentifiers): Info {
  return Object.defineProperty(info, RAW_DATA, { value: raw, configurable: true });
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
  const raw = rawData(info);
  const debug: LockInfoDebug<C> = {
    ...info,
    key: raw?.key ?? key,
    lockId: raw?.lockId ?? lockId,
  };
  if (raw?.owner !== undefined) debug.owner = raw.owner;
  return debug;
}
