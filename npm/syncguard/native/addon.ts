/**
 * The native addon: what it exports, as `crates/syncguard-node` defines it. What it has for one store alone has its types in
 * that store's folder.
 */

import { LockError, type LockErrorCode } from "./errors.js";
import { loadAddon } from "./loader.js";

export type StoreCapabilities = {
  backend: string;
  supportsFencing: boolean;
  timeAuthority: "server" | "client";
};

/** What is there for every store. */
export interface Addon {
  /** The core's; `functions.test.ts` holds these types against the values. */
  constants(): {
    timeToleranceMs: 1000;
    maxKeyLengthBytes: 512;
    fenceMax: "900000000000000";
    fenceWarn: "090000000000000";
    defaultTtlMs: 30_000;
  };
  normalizeKey(key: string): string;
  validateLockId(lockId: string): void;
  validateTtl(ttlMs: number): void;
  validateOwner(owner: string): void;
  generateLockId(): string;
  hashKey(text: string): string;
  makeStorageKey(prefix: string, key: string, limitBytes: number, reserveBytes: number): string;
  formatFence(decimal: string): string;
  isFenceNearLimit(fence: string): boolean;
  isLive(expiresAtMs: number, nowMs: number, toleranceMs: number): boolean;
  redisServerTimeMs(seconds: number, microseconds: number): number;
  Completions: new (onReady: () => void, numbers: Float64Array) => Completions;
  Acquisition: new (
    maxRetries: number,
    retryDelayMs: number,
    backoff: string,
    jitter: string,
    timeoutMs: number,
  ) => {
    after(failedWith: string | null, elapsedMs: number, random: number): number | string;
    attemptTimeoutMs(elapsedMs: number): number;
    isCut(failedWith: string, elapsedMs: number): boolean;
  };
}

export interface Completions {
  drain(): string;
  flush(): void;
  cancel(operation: number): void;
  answer(question: number, json: string): void;
  reject(question: number, name: string, code: string | undefined, message: string): void;
}

export interface Handle {
  readonly capabilities: StoreCapabilities;
  acquire(
    operation: number,
    cancellable: boolean,
    key: string,
    ttlMs: number,
    owner: string | undefined,
    timeoutMs: number | undefined,
  ): boolean;
  release(operation: number, cancellable: boolean, lockId: string): boolean;
  extend(operation: number, cancellable: boolean, lockId: string, ttlMs: number): boolean;
  isLocked(operation: number, cancellable: boolean, key: string): boolean;
  lookupByKey(operation: number, cancellable: boolean, key: string): boolean;
  lookupByLockId(operation: number, cancellable: boolean, lockId: string): boolean;
  forceRelease(operation: number, cancellable: boolean, key: string): boolean;
  close(operation: number): boolean;
  setupSchema(operation: number): boolean;
}

/** All that the addon exports, to be cast to the part that is needed. */
export const exported: unknown = loadAddon();

export const addon = exported as Addon;

/** Calls the addon and turns what it throws into a LockError. */
export function callAddon<T>(run: () => T): T {
  try {
    return run();
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    // Codes of Node-API itself, such as StringExpected, speak of arguments of a wrong type.
    const known = code !== undefined && CODES.has(code);
    throw new LockError(known ? (code as LockErrorCode) : "InvalidArgument", message);
  }
}

const CODES: ReadonlySet<string> = new Set<LockErrorCode>([
  "ServiceUnavailable",
  "AuthFailed",
  "InvalidArgument",
  "RateLimited",
  "NetworkTimeout",
  "AcquisitionTimeout",
  "Aborted",
  "Internal",
]);
