/**
 * The native addon: finding it, and turning its completions into promises.
 *
 * An operation gets a number, is handed to the addon with one synchronous call, and waits here as a
 * promise. Finished operations come back in batches: the addon calls `onReady`, and one `drain` call
 * fetches all of them.
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { LockError, type LockErrorCode } from "./errors.js";

export type Acquired = {
  lockId: string;
  fence: string;
  expiresAtMs: number;
  fenceNearLimit: boolean;
};

export type Absence = "expired" | "not-found";

export type RawRecord = {
  key: string;
  lockId: string;
  expiresAtMs: number;
  acquiredAtMs: number;
  fence: string;
  owner?: string;
  readAtMs: number;
};

export type NativeCapabilities = {
  backend: string;
  supportsFencing: boolean;
  timeAuthority: "server" | "client";
};

export type NativeAcquireOptions = {
  owner?: string | undefined;
  /** Ends the attempt before the backend's own limit does. */
  timeoutMs?: number | undefined;
  signal?: AbortSignal | undefined;
};

export type SqliteNativeOptions = {
  /** Absent for a database in memory. */
  path?: string;
  cleanupInIsLocked?: boolean;
  operationTimeoutMs?: number;
};

export type RetryPolicy = {
  maxRetries: number;
  retryDelayMs: number;
  backoff: string;
  jitter: string;
  timeoutMs: number;
};

/** The addon's exports, as `crates/syncguard-node` defines them. */
interface Addon {
  constants(): {
    timeToleranceMs: number;
    maxKeyLengthBytes: number;
    fenceMax: string;
    fenceWarn: string;
    defaultTtlMs: number;
  };
  normalizeKey(key: string): string;
  validateLockId(lockId: string): void;
  generateLockId(): string;
  hashKey(text: string): string;
  makeStorageKey(prefix: string, key: string, limitBytes: number, reserveBytes: number): string;
  formatFence(decimal: string): string;
  isFenceNearLimit(fence: string): boolean;
  isLive(expiresAtMs: number, nowMs: number, toleranceMs: number): boolean;
  redisServerTimeMs(seconds: number, microseconds: number): number;
  Completions: new (onReady: () => void) => Completions;
  Acquisition: new (
    maxRetries: number,
    retryDelayMs: number,
    backoff: string,
    jitter: string,
    timeoutMs: number,
  ) => {
    after(failedWith: string | null, elapsedMs: number, random: number): number | null;
    attemptTimeoutMs(elapsedMs: number): number;
  };
  NativeBackend: { sqlite(completions: Completions, options: SqliteNativeOptions): Handle };
}

interface Completions {
  drain(numbers: Float64Array): string[];
  cancel(operation: number): void;
}

interface Handle {
  readonly capabilities: NativeCapabilities;
  acquire(
    operation: number,
    cancellable: boolean,
    key: string,
    ttlMs: number,
    owner: string | undefined,
    timeoutMs: number | undefined,
  ): void;
  release(operation: number, cancellable: boolean, lockId: string): void;
  extend(operation: number, cancellable: boolean, lockId: string, ttlMs: number): void;
  isLocked(operation: number, cancellable: boolean, key: string): void;
  lookupByKey(operation: number, cancellable: boolean, key: string): void;
  lookupByLockId(operation: number, cancellable: boolean, lockId: string): void;
  forceRelease(operation: number, cancellable: boolean, key: string): void;
  close(operation: number): void;
}

const addon = load();

// ---------------------------------------------------------------------------------------------
// Operations and their completions

/** Numbers of one completion: operation, tag, three values. `completion.rs` writes them. */
const WIDTH = 5;
const numbers = new Float64Array(1 + 256 * WIDTH);

/** How outcomes are numbered; `completion.rs` has the same list. */
const enum Tag {
  Acquired,
  Locked,
  Done,
  Extended,
  Expired,
  NotFound,
  Yes,
  No,
  Found,
  Nothing,
  Failed,
}

/** A failed operation. It becomes a LockError where its caller awaits it, so that the stack is the caller's. */
class Failure {
  constructor(
    readonly code: LockErrorCode,
    readonly message: string,
    readonly causes: readonly string[],
  ) {}

  toError(): LockError {
    let cause: Error | undefined;
    for (let index = this.causes.length - 1; index >= 0; index -= 1) {
      cause = new Error(this.causes[index], cause && { cause });
      // What happened there has no JavaScript stack.
      cause.stack = `${cause.name}: ${cause.message}`;
    }
    return new LockError(this.code, this.message, cause && { cause });
  }
}

type Result = Acquired | RawRecord | Failure | Absence | number | boolean | null;

/** What to call with an operation's result, by its number. */
const waiting: ((result: Result) => void)[] = [];
/** Numbers of operations that have ended, to be used again. */
const free: number[] = [];

let completions: Completions | undefined;

function onReady(): void {
  const source = completions;
  if (source === undefined) return;
  let count: number;
  do {
    const texts = source.drain(numbers);
    count = numbers[0] as number;
    let text = 0;
    for (let at = 1; at < 1 + count * WIDTH; at += WIDTH) {
      const operation = numbers[at] as number;
      const first = numbers[at + 2] as number;
      let result: Result;
      switch (numbers[at + 1] as Tag) {
        case Tag.Acquired:
          result = {
            lockId: texts[text++] as string,
            fence: texts[text++] as string,
            expiresAtMs: first,
            fenceNearLimit: numbers[at + 3] === 1,
          };
          break;
        case Tag.Locked:
        case Tag.Nothing:
          result = null;
          break;
        case Tag.Done:
        case Tag.Yes:
          result = true;
          break;
        case Tag.No:
          result = false;
          break;
        case Tag.Extended:
          result = first;
          break;
        case Tag.Expired:
          result = "expired";
          break;
        case Tag.NotFound:
          result = "not-found";
          break;
        case Tag.Found: {
          result = {
            key: texts[text++] as string,
            lockId: texts[text++] as string,
            expiresAtMs: first,
            acquiredAtMs: numbers[at + 3] as number,
            fence: texts[text++] as string,
            readAtMs: numbers[at + 4] as number,
          };
          const owner = texts[text++];
          if (owner) result.owner = owner;
          break;
        }
        case Tag.Failed:
          result = new Failure(
            texts[text] as LockErrorCode,
            texts[text + 1] as string,
            texts.slice(text + 2, text + 2 + first),
          );
          text += 2 + first;
          break;
      }
      const resolve = waiting[operation];
      free.push(operation);
      resolve?.(result);
    }
  } while (count === (numbers.length - 1) / WIDTH);
}

/** Runs one operation: `start` gets its number and hands it over. */
async function run<T extends Result>(
  signal: AbortSignal | undefined,
  start: (operation: number, cancellable: boolean) => void,
): Promise<T> {
  if (signal !== undefined) checkSignal(signal);
  const source = completions as Completions;
  const operation = free.pop() ?? waiting.length;
  let cancel: (() => void) | undefined;
  if (signal !== undefined) {
    cancel = () => source.cancel(operation);
    signal.addEventListener("abort", cancel, { once: true });
  }
  const result = await new Promise<Result>((resolve) => {
    waiting[operation] = resolve;
    start(operation, cancel !== undefined);
  });
  if (cancel !== undefined) signal?.removeEventListener("abort", cancel);
  if (result instanceof Failure) throw result.toError();
  return result as T;
}

function checkSignal(signal: AbortSignal): void {
  if (typeof signal?.addEventListener !== "function") {
    throw new LockError("InvalidArgument", "signal must be an AbortSignal");
  }
  if (signal.aborted) throw new LockError("Aborted", "Operation aborted by signal");
}

// ---------------------------------------------------------------------------------------------
// Backends

/**
 * A backend of the addon. Arguments are taken as users gave them: whatever is wrong with them
 * becomes a rejection, never a synchronous throw.
 */
export class NativeBackend {
  readonly capabilities: NativeCapabilities;

  constructor(private readonly handle: Handle) {
    this.capabilities = handle.capabilities;
  }

  /** `null`: somebody holds it. */
  async acquire(
    key: string,
    ttlMs: number,
    options: NativeAcquireOptions = {},
  ): Promise<Acquired | null> {
    checkKey(key);
    checkTtl(ttlMs);
    const { owner, timeoutMs, signal } = options;
    if (owner !== undefined && typeof owner !== "string") {
      throw new LockError("InvalidArgument", "owner must be a string");
    }
    return run<Acquired | null>(signal, (operation, cancellable) =>
      this.handle.acquire(operation, cancellable, key, ttlMs, owner, timeoutMs),
    );
  }

  async release(lockId: string, signal?: AbortSignal): Promise<true | Absence> {
    checkLockId(lockId);
    return run<true | Absence>(signal, (operation, cancellable) =>
      this.handle.release(operation, cancellable, lockId),
    );
  }

  /** When it ends now, in milliseconds since the Unix epoch. */
  async extend(lockId: string, ttlMs: number, signal?: AbortSignal): Promise<number | Absence> {
    checkLockId(lockId);
    checkTtl(ttlMs);
    return run<number | Absence>(signal, (operation, cancellable) =>
      this.handle.extend(operation, cancellable, lockId, ttlMs),
    );
  }

  async isLocked(key: string, signal?: AbortSignal): Promise<boolean> {
    checkKey(key);
    return run<boolean>(signal, (operation, cancellable) =>
      this.handle.isLocked(operation, cancellable, key),
    );
  }

  async lookupByKey(key: string, signal?: AbortSignal): Promise<RawRecord | null> {
    checkKey(key);
    return run<RawRecord | null>(signal, (operation, cancellable) =>
      this.handle.lookupByKey(operation, cancellable, key),
    );
  }

  async lookupByLockId(lockId: string, signal?: AbortSignal): Promise<RawRecord | null> {
    checkLockId(lockId);
    return run<RawRecord | null>(signal, (operation, cancellable) =>
      this.handle.lookupByLockId(operation, cancellable, lockId),
    );
  }

  async forceRelease(key: string, signal?: AbortSignal): Promise<boolean> {
    checkKey(key);
    return run<boolean>(signal, (operation, cancellable) =>
      this.handle.forceRelease(operation, cancellable, key),
    );
  }

  async close(): Promise<void> {
    await run<true>(undefined, (operation) => this.handle.close(operation));
  }
}

function checkKey(key: unknown): asserts key is string {
  if (typeof key !== "string") throw new LockError("InvalidArgument", "Key must be a string");
}

function checkLockId(lockId: unknown): asserts lockId is string {
  if (typeof lockId === "string") return;
  const got = lockId ? typeof lockId : "empty/null";
  throw new LockError(
    "InvalidArgument",
    `Invalid lockId format. Expected 22 base64url characters, got: ${got}`,
  );
}

function checkTtl(ttlMs: unknown): asserts ttlMs is number {
  if (typeof ttlMs !== "number") {
    throw new LockError("InvalidArgument", "ttlMs must be a positive integer");
  }
}

// ---------------------------------------------------------------------------------------------
// The core's functions

/** Calls the addon and turns what it throws into a LockError. */
function call<T>(run: () => T): T {
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

/** When to try again: the core's rules, for one acquisition. */
export interface Acquisition {
  /**
   * After an attempt that gave no lock (`failedWith` null: contention): the milliseconds to wait,
   * or null when the failure is to be reported. Throws `AcquisitionTimeout` when others held the
   * lock for too long.
   */
  after(failedWith: LockErrorCode | null, elapsedMs: number, random: number): number | null;
  /** How long the next attempt may take. */
  attemptTimeoutMs(elapsedMs: number): number;
}

export const core = {
  ...addon.constants(),

  normalizeAndValidateKey(key: string): string {
    checkKey(key);
    return call(() => addon.normalizeKey(key));
  },
  validateLockId(lockId: string): void {
    checkLockId(lockId);
    call(() => addon.validateLockId(lockId));
  },
  generateLockId: (): string => call(() => addon.generateLockId()),
  hashKey: (value: string): string => call(() => addon.hashKey(value)),
  makeStorageKey(prefix: string, key: string, limitBytes: number, reserveBytes: number): string {
    checkKey(key);
    return call(() => addon.makeStorageKey(prefix, key, limitBytes, reserveBytes));
  },
  formatFence: (decimal: string): string => call(() => addon.formatFence(decimal)),
  isFenceNearLimit: (fence: string): boolean => call(() => addon.isFenceNearLimit(fence)),
  isLive: (expiresAtMs: number, nowMs: number, toleranceMs: number): boolean =>
    call(() => addon.isLive(expiresAtMs, nowMs, toleranceMs)),
  redisServerTimeMs: (seconds: number, microseconds: number): number =>
    call(() => addon.redisServerTimeMs(seconds, microseconds)),

  createAcquisition(policy: RetryPolicy): Acquisition {
    const { maxRetries, retryDelayMs, backoff, jitter, timeoutMs } = policy;
    const rules = call(
      () => new addon.Acquisition(maxRetries, retryDelayMs, backoff, jitter, timeoutMs),
    );
    return {
      after: (failedWith, elapsedMs, random) =>
        call(() => rules.after(failedWith, elapsedMs, random)),
      attemptTimeoutMs: (elapsedMs) => rules.attemptTimeoutMs(elapsedMs),
    };
  },

  createSqliteBackend: (options: SqliteNativeOptions): NativeBackend =>
    open((source) => addon.NativeBackend.sqlite(source, options)),
};

function open(create: (source: Completions) => Handle): NativeBackend {
  completions ??= call(() => new addon.Completions(onReady));
  const source = completions;
  return new NativeBackend(call(() => create(source)));
}

// ---------------------------------------------------------------------------------------------
// Finding the addon

/**
 * Loads the addon from SYNCGUARD_NATIVE_PATH, from a build in this package, or from the package for
 * this platform. When none loads, the error says why for each, in the loader's own words.
 */
function load(): Addon {
  const platform = platformName();
  const file = `syncguard.${platform}.node`;
  const given = process.env.SYNCGUARD_NATIVE_PATH;
  const candidates = given
    ? [given]
    : [join(__dirname, "..", "npm", platform, file), `syncguard-${platform}`];
  const failures: { where: string; error: unknown }[] = [];
  for (const where of candidates) {
    try {
      return require(where) as Addon;
    } catch (error) {
      failures.push({ where, error });
    }
  }
  const reasons = failures.map(({ where, error }) => {
    const [line] = String(error instanceof Error ? error.message : error).split("\n");
    return `\n  ${where}: ${line}`;
  });
  throw new LockError(
    "Internal",
    `The native part of syncguard for ${platform} could not be loaded.` +
      " Install the package without --omit=optional, or build it from source." +
      reasons.join(""),
    { cause: failures.at(-1)?.error },
  );
}

function platformName(): string {
  const { platform, arch } = process;
  if (platform === "win32") return `${platform}-${arch}-msvc`;
  if (platform !== "linux") return `${platform}-${arch}`;
  return `${platform}-${arch}-${isMusl() ? "musl" : "gnu"}`;
}

function isMusl(): boolean {
  try {
    return readFileSync("/usr/bin/ldd", "latin1").includes("musl");
  } catch {
    const report = process.report?.getReport() as
      { header?: { glibcVersionRuntime?: string } } | undefined;
    return report?.header?.glibcVersionRuntime === undefined;
  }
}
