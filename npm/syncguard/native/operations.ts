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
  type Busy,
  type StoredLabels,
  type WaitStats,
  Failure,
  type MissingLock,
  type Locked,
  type RawRecord,
  type Text,
} from "./outcome.js";
import { onAbort } from "./signal.js";
import { ShortLivedMap } from "./short-lived-map.js";
import { memberOf, messageOf } from "./thrown.js";
import { untraced } from "./untraced.js";

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
    look = completions.look();
  }
  return completions;
}

let drain: ReturnType<Completions["drain"]>;
let look: ReturnType<Completions["look"]>;

/** The texts that came with the numbers, one after another, and how far they have been read. */
let texts = "";
let textsRead = 0;

/** The next text, which is so long. */
function nextText(length: number): string {
  const from = textsRead;
  textsRead = from + length;
  return texts.slice(from, textsRead);
}

/** A number of the completion at that place, after its operation and its tag. */
function value(at: number, place: number): number {
  return numbers[at + 2 + place] as number;
}

function onReady(): void {
  const source = completions;
  if (source === undefined) return;
  let count: number;
  do {
    texts = drain(numbers);
    textsRead = 0;
    count = numbers[0] as number;
    for (let at = 1; at < 1 + count * WIDTH; at += WIDTH) {
      const operation = numbers[at] as number;
      const tag = numbers[at + 1] as Tag;
      const read = RESULTS[tag];
      if (read === undefined) {
        MESSAGES[tag]?.(source, operation, at);
        continue;
      }
      const result = read(at);
      const resolve = waiting[operation];
      free.push(operation);
      resolve?.(result);
    }
  } while (count === (numbers.length - 1) / WIDTH);
}

/** What ends no operation: a question to a client, or news of a lock that extends itself. */
const MESSAGES: Readonly<
  Partial<Record<Tag, (source: Completions, number: number, at: number) => void>>
> = {
  [Tag.Ask]: (source, question, at) => ask(source, question, value(at, 0), nextText(value(at, 1))),
  [Tag.Held]: (_source, holder, at) => holders.get(holder)?.held(value(at, 0)),
  [Tag.Lost]: (source, holder, at) => {
    const failure = readFailure(nextText(value(at, 0)));
    const place = value(at, 1);
    holders.get(holder)?.lost(failure, Number.isNaN(place) ? undefined : place);
    source.removeHolder(holder);
  },
};

/** How the result of each kind is read. */
const RESULTS: Readonly<Partial<Record<Tag, (at: number) => Result>>> = {
  [Tag.Acquired]: readAcquired,
  [Tag.AcquiredAll]: readAcquiredAll,
  [Tag.Locked]: readLocked,
  [Tag.Nothing]: () => null,
  [Tag.Done]: () => true,
  [Tag.Yes]: () => true,
  [Tag.No]: () => false,
  [Tag.Released]: (at) => JSON.parse(nextText(value(at, 0))) as boolean[],
  [Tag.Extended]: (at) => value(at, 0),
  [Tag.Expired]: (at) => absence("expired", value(at, 0)),
  [Tag.NotFound]: (at) => absence("not-found", value(at, 0)),
  [Tag.Found]: readFound,
  [Tag.Text]: (at) => ({ text: nextText(value(at, 0)) }),
  [Tag.Failed]: (at) => readFailure(nextText(value(at, 0)), waitStatsAt(at)),
};

function readAcquired(at: number): Acquired {
  const acquired: Acquired = {
    lockId: nextText(LOCK_ID),
    fence: nextText(FENCE),
    expiresAtMs: value(at, 0),
    fenceNearLimit: value(at, 1) === 1,
  };
  if (value(at, 3) !== 0) acquired.waitStats = waitStatsAt(at);
  if (value(at, 6) !== 0) acquired.slot = value(at, 6);
  return acquired;
}

function readAcquiredAll(at: number): Acquired {
  const json = nextText(value(at, 1));
  const locks = JSON.parse(json) as (AcquiredLock & { fenceNearLimit: boolean })[];
  const acquired: Acquired = {
    lockId: locks[0]?.lockId ?? "",
    fence: locks[0]?.fence ?? "",
    expiresAtMs: value(at, 0),
    fenceNearLimit: locks.some((lock) => lock.fenceNearLimit),
    locks,
  };
  if (value(at, 3) !== 0) acquired.waitStats = waitStatsAt(at);
  return acquired;
}

function readLocked(at: number): Locked {
  const retryAfterMs = value(at, 0);
  const key = nextText(value(at, 1));
  const locked: Locked = { lockedKey: key === "" ? undefined : key };
  const labels = nextText(value(at, 2));
  const busy: Busy = labels === "" ? {} : (JSON.parse(labels) as StoredLabels);
  if (!Number.isNaN(retryAfterMs)) busy.retryAfterMs = retryAfterMs;
  if (!Number.isNaN(retryAfterMs) || labels !== "") locked.busy = busy;
  return locked;
}

function readFound(at: number): RawRecord {
  const record: RawRecord = {
    lockId: nextText(LOCK_ID),
    fence: nextText(FENCE),
    key: nextText(value(at, 3)),
    expiresAtMs: value(at, 0),
    acquiredAtMs: value(at, 1),
    readAtMs: value(at, 2),
  };
  const labels = nextText(value(at, 4));
  if (labels !== "") Object.assign(record, JSON.parse(labels));
  return record;
}

/** Of several locks, which one is absent. */
function absence(why: Absence, lock: number): Absence | MissingLock {
  return lock === 0 ? why : { absence: why, lock };
}

function readFailure(json: string, waitStats?: WaitStats): Failure {
  const [code, message, busy, ...causes] = JSON.parse(json) as [
    ...[LockErrorCode, string, Busy | null],
    ...string[],
  ];
  return new Failure(code, message, causes, waitStats, busy ?? undefined);
}

/** What the waiting took that has come to the completion at that place. */
function waitStatsAt(at: number): WaitStats {
  const lastMs = value(at, 2);
  return {
    lastMs: Number.isNaN(lastMs) ? undefined : lastMs,
    attempts: value(at, 3),
    contended: value(at, 4),
    wakeups: value(at, 5),
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

/** Why the lock of a holder is lost, if it is at this moment, whether or not the holder has been told; and which it is of several. */
export function lossOf(
  number: number,
): { failure: Failure; which: number | undefined } | undefined {
  const json = look(number);
  if (json === null) return undefined;
  const [which, code, message, ...causes] = JSON.parse(json) as [
    number | null,
    LockErrorCode,
    string,
    ...string[],
  ];
  return { failure: new Failure(code, message, causes), which: which ?? undefined };
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
    return await untraced(() => target(JSON.parse(json) as never));
  };
  answer()
    .then((value) => source.answer(question, asJson(value ?? null)))
    // Whatever it is: nothing may be thrown here, where it would end the process.
    .catch((error: unknown) => {
      const code = memberOf(error, "code");
      source.reject(
        question,
        nameOf(error),
        // gRPC's are numbers.
        typeof code === "string" || typeof code === "number" ? String(code) : undefined,
        messageOf(error),
      );
    });
}

/** What a client has answered. No server answers with what JSON has not. */
function asJson(value: unknown): string {
  const json = JSON.stringify(value) as string | undefined;
  if (json === undefined) throw new TypeError(`the client has answered with a ${typeof value}`);
  return json;
}

/** What an error calls itself, or what its class is called, where the class gives its errors no name. */
function nameOf(error: unknown): string {
  const name = memberOf(error, "name");
  if (typeof name !== "string") return "";
  const ofClass = name === "Error" ? memberOf(memberOf(error, "constructor"), "name") : undefined;
  return typeof ofClass === "string" ? ofClass : name;
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
