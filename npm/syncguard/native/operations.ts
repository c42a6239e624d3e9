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

/** How many numbers one completion has: operation, tag, and values. `completion.rs` writes them. */
const WIDTH = constants.completionWidth;
const numbers = new Float64Array(1 + 256 * WIDTH);
/** Lock ids and fences have fixed lengths, so these do not cross. */
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

/** For each operation under way, by its number, the function that takes its result. */
const waiting: ((result: Result) => void)[] = [];
/** Numbers of operations that have ended. They are used again. */
const free: number[] = [];

let completions: Completions | undefined;

/** The addon's completions for this environment. They are made with its first backend. */
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

/** All texts of a batch, one after another. */
let texts = "";
/** Up to where they have been read. */
let textsRead = 0;

/** Reads the next text, which has this length. */
function nextText(length: number): string {
  const from = textsRead;
  textsRead = from + length;
  return texts.slice(from, textsRead);
}

/** One of the values of the completion that begins at `at`. They come after its operation and its tag. */
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

/** Reads what ends no operation: questions to clients, and news of locks that extend themselves. */
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

/** Reads the results that end operations. */
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
  if (value(at, 5) === 1) record.isShared = true;
  return record;
}

/** Why a lock is absent. `lock` says which one of several it is. */
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

/** What the waiting took, as the completion that begins at `at` says. */
function waitStatsAt(at: number): WaitStats {
  const lastMs = value(at, 2);
  return {
    lastMs: Number.isNaN(lastMs) ? undefined : lastMs,
    attempts: value(at, 3),
    contended: value(at, 4),
    wakeups: value(at, 5),
  };
}

/** Hears of a lock that the core extends. Its functions must not throw. */
export type Holder = {
  /** A heartbeat has made the lock end at this time of the store. */
  held: (expiresAtMs: number) => void;
  /** The lock is lost. Of several, `which` names the one that is gone, if the core knows. Nothing is told after this. */
  lost: (failure: Failure, which: number | undefined) => void;
};

/** The holders, by the numbers under which the addon knows them. */
const holders = new ShortLivedMap<number, Holder>();
let nextHolder = 0;

/** Gives a holder a number, which counts until `removeHolder` is called with it. */
export function addHolder(holder: Holder): number {
  // The addon takes 32 bits. By the time that a number comes again, the lock that had it has long ended.
  nextHolder = (nextHolder + 1) >>> 0;
  holders.set(nextHolder, holder);
  return nextHolder;
}

export function removeHolder(number: number): void {
  holders.delete(number);
}

/** Asks the core whether the lock of a holder is lost at this moment, even if the holder has not been told. Of several, `which` is gone. */
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

/** Answers a question of the core by asking a client object. */
export type Client = (request: never) => Promise<unknown>;

/** The clients that the core may ask, by number. */
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
    // An error thrown here would end the process, so this catches everything.
    .catch((error: unknown) => {
      const code = memberOf(error, "code");
      source.reject(
        question,
        nameOf(error),
        // The codes of gRPC are numbers.
        typeof code === "string" || typeof code === "number" ? String(code) : undefined,
        messageOf(error),
      );
    });
}

/** Turns a client's answer into JSON, and refuses what JSON does not have: no server answers so. */
function asJson(value: unknown): string {
  const json = JSON.stringify(value) as string | undefined;
  if (json === undefined) throw new TypeError(`the client has answered with a ${typeof value}`);
  return json;
}

/** The name of an error, or that of its class if the class gives its errors no name. */
function nameOf(error: unknown): string {
  const name = memberOf(error, "name");
  if (typeof name !== "string") return "";
  const ofClass = name === "Error" ? memberOf(memberOf(error, "constructor"), "name") : undefined;
  return typeof ofClass === "string" ? ofClass : name;
}

/** Hands the addon an operation with this number. */
type Start = (operation: number, cancellable: boolean) => void;

/**
 * Runs one operation. Its result goes through {@link settle}. If `start` throws because of wrong arguments, the promise is
 * rejected.
 *
 * Neither this nor its callers in this room are async functions, because each would cost every operation one more promise.
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
      // The addon has not got the operation, so its number is free again.
      free.push(operation);
      throw error;
    }
    waiting[operation] = resolve as (result: Result) => void;
  });
}
