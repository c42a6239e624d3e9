/**
 * Operations of the addon as promises.
 *
 * An operation gets a number, is handed to the addon with one synchronous call, and waits here as a
 * promise. Finished operations come back in batches: the addon calls `onReady`, and one `drain` call
 * fetches all of them.
 */

import { addon, type Completions } from "./addon.js";
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
  /** Not an outcome: a question to a client. */
  Ask,
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

/** The operations of this environment; made when the first backend is. */
export function ownCompletions(): Completions {
  completions ??= new addon.Completions(onReady);
  return completions;
}

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
        case Tag.Ask:
          ask(source, operation, first, texts[text++] as string);
          continue;
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
      const { name, code, message } = (error ?? {}) as Record<string, unknown>;
      source.reject(
        question,
        typeof name === "string" ? name : "",
        typeof code === "string" ? code : undefined,
        typeof message === "string" ? message : String(error),
      );
    });
}

/** Runs one operation: `start` gets its number and hands it over. */
export async function run<T extends Result>(
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
  let result: Result;
  try {
    result = await new Promise<Result>((resolve) => {
      start(operation, cancel !== undefined);
      waiting[operation] = resolve;
    });
  } catch (error) {
    // It was not handed over, so its number is free again.
    free.push(operation);
    throw error;
  } finally {
    if (cancel !== undefined) signal?.removeEventListener("abort", cancel);
  }
  if (result instanceof Failure) throw result.toError();
  return result as T;
}

function checkSignal(signal: AbortSignal): void {
  if (typeof signal?.addEventListener !== "function") {
    throw new LockError("InvalidArgument", "signal must be an AbortSignal");
  }
  if (signal.aborted) throw new LockError("Aborted", "Operation aborted by signal");
}
