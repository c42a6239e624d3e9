/**
 * Operations of the addon as promises.
 *
 * An operation gets a number, is handed to the addon with one synchronous call, and waits here as a
 * promise. Finished operations come back in batches: the addon calls `onReady`, and one `drain` call
 * fetches all of them.
 */

import { addon } from "./addon.js";
import { constants } from "./constants.js";
import type { LockErrorCode } from "./errors.js";
import { type Completions, Tag } from "./exports.js";
import {
  type Absence,
  type Acquired,
  type AcquiredLock,
  type WaitStats,
  Failure,
  type MissingLock,
  type Locked,
  type RawRecord,
  type Text,
} from "./outcome.js";
import { onAbort } from "./signal.js";
import { ShortLivedMap } from "./short-lived-map.js";

/** Numbers of one completion: operation, tag, six values. `completion.rs` writes them. */
const WIDTH = constants.completionWidth;
const numbers = new Float64Array(1 + 256 * WIDTH);
/** The lengths of texts that are always as long. */
const LOCK_ID = constants.lockIdLength;
const FENCE = constants.fenceDigits;

type Result =
  | Text
  | Acquired
  | Locked
  | RawRecord
  | Failure
  | Absence
  | MissingLock
  | number
  | boolean
  | readonly boolean[]
  | null;

/** What to call with an operation's result, by its number. */
const waiting: ((result: Result) => void)[] = [];
/** Numbers of operations that have ended, to be used again. */
const free: number[] = [];

let completions: Completions | undefined;

/** The operations of this environment; made when the first backend is. */
export function ownCompletions(): Completions {
  if (completions === undefined) {
    completions = new (addon().Completions)(onReady);
    drain = completions.drain();
  }
  return completions;
}

let drain: ReturnType<Completions["drain"]>;

function onReady(): void {
  const source = completions;
  if (source === undefined) return;
  let count: number;
  do {
    const texts = drain(numbers);
    count = numbers[0] as number;
    let from = 0;
    for (let at = 1; at < 1 + count * WIDTH; at += WIDTH) {
      const operation = numbers[at] as number;
      const first = numbers[at + 2] as number;
      let result: Result;
      switch (numbers[at + 1] as Tag) {
        case Tag.Ask: {
          const question = texts.slice(from, (from += numbers[at + 3] as number));
          ask(source, operation, first, question);
          continue;
        }
        case Tag.Held:
          holders.get(operation)?.held(first);
          continue;
        case Tag.Lost: {
          const failure = readFailure(texts.slice(from, (from += first)));
          const which = numbers[at + 3] as number;
          holders.get(operation)?.lost(failure, Number.isNaN(which) ? undefined : which);
          continue;
        }
        case Tag.Acquired:
          result = {
            lockId: texts.slice(from, (from += LOCK_ID)),
            fence: texts.slice(from, (from += FENCE)),
            expiresAtMs: first,
            fenceNearLimit: numbers[at + 3] === 1,
          };
          if (numbers[at + 5] !== 0) result.waitStats = waitStatsAt(at);
          if (numbers[at + 8] !== 0) result.slot = numbers[at + 8] as number;
          break;
        case Tag.AcquiredAll: {
          const json = texts.slice(from, (from += numbers[at + 3] as number));
          const locks = JSON.parse(json) as (AcquiredLock & { fenceNearLimit: boolean })[];
          result = {
            lockId: locks.map((lock) => lock.lockId).join(),
            fence: locks[0]?.fence ?? "",
            expiresAtMs: first,
            fenceNearLimit: locks.some((lock) => lock.fenceNearLimit),
            locks,
          };
          if (numbers[at + 5] !== 0) result.waitStats = waitStatsAt(at);
          break;
        }
        case Tag.Locked: {
          const key = texts.slice(from, (from += numbers[at + 3] as number));
          result = key === "" ? LOCKED : { lockedKey: key };
          break;
        }
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
        case Tag.Released:
          result = JSON.parse(texts.slice(from, (from += first))) as boolean[];
          break;
        case Tag.Extended:
          result = first;
          break;
        case Tag.Expired:
          result = first === 0 ? "expired" : { absence: "expired", lock: first };
          break;
        case Tag.NotFound:
          result = first === 0 ? "not-found" : { absence: "not-found", lock: first };
          break;
        case Tag.Found: {
          result = {
            lockId: texts.slice(from, (from += LOCK_ID)),
            fence: texts.slice(from, (from += FENCE)),
            key: texts.slice(from, (from += numbers[at + 5] as number)),
            expiresAtMs: first,
            acquiredAtMs: numbers[at + 3] as number,
            readAtMs: numbers[at + 4] as number,
          };
          const labels = texts.slice(from, (from += numbers[at + 6] as number));
          if (labels !== "") Object.assign(result, JSON.parse(labels));
          break;
        }
        case Tag.Text:
          result = { text: texts.slice(from, (from += first)) };
          break;
        case Tag.Failed:
          result = readFailure(texts.slice(from, (from += first)), waitStatsAt(at));
          break;
      }
      const resolve = waiting[operation];
      free.push(operation);
      resolve?.(result);
    }
  } while (count === (numbers.length - 1) / WIDTH);
}

const LOCKED: Locked = { lockedKey: undefined };

function readFailure(json: string, waitStats?: WaitStats): Failure {
  const [code, message, ...causes] = JSON.parse(json) as [LockErrorCode, string];
  return new Failure(code, message, causes, waitStats);
}

/** What the waiting took that has come to the completion at that place. */
function waitStatsAt(at: number): WaitStats {
  const lastMs = numbers[at + 4] as number;
  return {
    lastMs: Number.isNaN(lastMs) ? undefined : lastMs,
    attempts: numbers[at + 5] as number,
    contended: numbers[at + 6] as number,
    wakeups: numbers[at + 7] as number,
  };
}

/** Whoever holds a lock that extends itself. It must not throw. */
export type Holder = {
  /** The lock ends at this time of the store now. */
  held: (expiresAtMs: number) => void;
  /** The lock is lost, or that one of several. Nothing is told after it. */
  lost: (failure: Failure, which: number | undefined) => void;
};

/** Those who hold locks that extend themselves, by the numbers that the addon knows them by. */
const holders = new ShortLivedMap<number, Holder>();
let nextHolder = 0;

/** A number for a holder, until `removeHolder` is called with it. */
export function addHolder(holder: Holder): number {
  // The addon takes 32 bits. Nobody holds a lock while four billion others are taken.
  nextHolder = (nextHolder + 1) >>> 0;
  holders.set(nextHolder, holder);
  return nextHolder;
}

export function removeHolder(number: number): void {
  holders.delete(number);
}

/** Ends the heartbeats of a lock that nobody will release. */
export function forgetHolder(number: number): void {
  completions?.forgetHolder(number);
}

/** Puts a question of the core, in JSON, to a client object, and brings back what it answers. */
export type Client = (request: never) => Promise<unknown>;

/** The client objects that backends drive, by number. */
const clients = new Map<number, Client>();
let nextClient = 0;
const unusedClients = new FinalizationRegistry<number>((client) => clients.delete(client));

/** Registers a client for as long as the backend that `create` makes for its number lives. */
export function withClient<Backend extends object>(
  client: Client,
  create: (client: number) => Backend,
): Backend {
  const number = nextClient;
  nextClient += 1;
  clients.set(number, client);
  try {
    const backend = create(number);
    unusedClients.register(backend, number);
    return backend;
  } catch (error) {
    clients.delete(number);
    throw error;
  }
}

function ask(source: Completions, question: number, client: number, json: string): void {
  const answer = async (): Promise<unknown> => {
    const target = clients.get(client);
    if (target === undefined) throw new Error("the client is gone");
    return await target(JSON.parse(json) as never);
  };
  answer()
    .then((value) => source.answer(question, JSON.stringify(value ?? null)))
    .catch((error: unknown) => {
      const { code, message } = (error ?? {}) as Record<string, unknown>;
      source.reject(
        question,
        nameOf(error),
        // gRPC's are numbers.
        typeof code === "string" || typeof code === "number" ? String(code) : undefined,
        typeof message === "string" ? message : String(error),
      );
    });
}

/** What an error calls itself, or what its class is called, where the class gives its errors no name. */
function nameOf(error: unknown): string {
  const { name, constructor } = (error ?? {}) as Partial<Error>;
  if (typeof name !== "string") return "";
  return name === "Error" && typeof constructor === "function" ? constructor.name : name;
}

/** Hands an operation with that number over. */
type Start = (operation: number, cancellable: boolean) => void;

/**
 * Runs one operation. What it gives goes through {@link settle}. Whatever is wrong with the arguments becomes a
 * rejection: `start` may throw.
 *
 * Not an async function, nor anything else on the way to it: each would cost every operation a promise more.
 */
export function run<T extends Result>(
  signal: AbortSignal | undefined,
  start: Start,
): Promise<T | Failure> {
  return signal === undefined ? begin(nextOperation(), false, start) : runUntil(signal, start);
}

/** {@link run} that ends with the signal, which {@link readSignal} has checked. */
async function runUntil<T extends Result>(signal: AbortSignal, start: Start): Promise<T | Failure> {
  const source = completions as Completions;
  let operation: number | undefined;
  const stop = onAbort(signal, () => {
    if (operation !== undefined) source.cancel(operation);
  });
  try {
    operation = nextOperation();
    return await begin(operation, true, start);
  } finally {
    stop();
  }
}

function nextOperation(): number {
  return free.pop() ?? waiting.length;
}

function begin<T extends Result>(
  operation: number,
  cancellable: boolean,
  start: Start,
): Promise<T | Failure> {
  return new Promise((resolve) => {
    try {
      start(operation, cancellable);
    } catch (error) {
      // It was not handed over, so its number is free again.
      free.push(operation);
      throw error;
    }
    waiting[operation] = resolve as (result: Result) => void;
  });
}
