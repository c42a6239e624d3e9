/** Checks locks in users' own transactions. */

import type { StoreMembersOf } from "../backend/backend.js";
import { checkNotLost, notFound } from "../holding/guard.js";
import type { DirectAccess } from "../holding/internals.js";
import type { Lease } from "../holding/lease.js";
import type { GuardQuery, PostgresDone, PostgresGuard, PostgresTransaction } from "./members.js";
import { addon } from "../native/addon.js";
import { LockError, type LockErrorCode } from "../native/errors.js";
import type { Store } from "../native/store.js";
import { invalid } from "../options/validation.js";
import type { Fields } from "./target.js";

/** Runs a statement in a transaction. */
type Run = (query: GuardQuery) => Promise<void>;

/** A pg client, as far as it tells whether it is in a transaction. */
type Connected = {
  query: (text: string, values: readonly string[]) => PromiseLike<unknown>;
  connectionParameters?: unknown;
  connection?: {
    on?: (event: "readyForQuery", hear: (message: { status?: string }) => void) => unknown;
  };
};

/** What the locks of a backend have beside the methods of all. */
export function guarding(store: Store): StoreMembersOf {
  return (lease, direct) => {
    /** Functions that run a statement in a transaction, and give it to those who run it themselves. */
    const both = (query: () => GuardQuery) => {
      /** A leader guards with one handle what it writes in many transactions. */
      let known: { readonly query: GuardQuery; readonly locks: number } | undefined;
      return {
        run: async (tx: PostgresTransaction): Promise<void> => {
          const run = runIn(tx);
          try {
            checkNotLost(lease);
            const locks = lease.lockIds.length;
            if (known?.locks !== locks) known = { query: query(), locks };
            await run(known.query);
          } catch (error) {
            await stop(run);
            throw await judged(error, lease, direct);
          }
        },
        query: (): GuardQuery => {
          checkNotLost(lease);
          return query();
        },
      };
    };
    const check = both(() => store.check(lease.lockIds));
    const guardFailed = async (error: unknown): Promise<boolean> => {
      const all = objectsIn(error);
      // Thrown by a guard that knew of the loss, and so did not ask the server.
      if (lease.loss !== undefined && all.includes(lease.loss)) return true;
      const refusal = refusalAmong(all);
      if (refusal !== undefined) await judged(refusal, lease, direct);
      return refusal !== undefined;
    };
    const guard: PostgresGuard = { guard: check.run, guardQuery: check.query, guardFailed };
    const { due } = lease;
    if (due === undefined) return guard;
    const storing = both(() => {
      lease.noteDone();
      const [key] = lease.storedKeys;
      return store.check(lease.lockIds, key, due);
    });
    const done: PostgresDone = { done: storing.run, doneQuery: storing.query };
    return { ...guard, ...done };
  };
}

/** Sees to it that a transaction whose guard has failed is not committed, also if that was in a savepoint. */
async function stop(run: Run): Promise<void> {
  // It fails, as the transaction does with it. Where there is none any more, there is nothing to stop.
  await run({ text: addon().stopTransaction(), values: [] }).catch(() => undefined);
}

/** The SQLSTATE with which a guard fails by itself. */
const NOT_HELD = "22P02";

/** How deep in an error that of the server may be, and of how many objects all of it may be made. */
const DEPTH = 5;
const OBJECTS = 100;

/** The error of a client, and what it was made of, outermost first. */
function objectsIn(error: unknown): object[] {
  const seen = new Set<object>();
  let layer = [error];
  for (let depth = 0; depth < DEPTH && seen.size < OBJECTS; depth += 1) {
    const isNew = (each: unknown): each is object =>
      typeof each === "object" && each !== null && !seen.has(each);
    const found = layer.filter(isNew).slice(0, OBJECTS - seen.size);
    for (const each of found) seen.add(each);
    layer = found.flatMap(valuesOf);
  }
  return [...seen];
}

/**
 * The server's error of a guard that refused: the object that has its SQLSTATE, and its words. A statement that failed for another
 * reason may be quoted in the error as well, so its words alone mean nothing.
 */
function refusalAmong(objects: readonly object[]): { code: string; message: string } | undefined {
  for (const each of objects) {
    const values = valuesOf(each);
    const message = values.find(isRefusal);
    if (values.includes(NOT_HELD) && message !== undefined) return { code: NOT_HELD, message };
  }
  return undefined;
}

/** The message and the cause of an error are not enumerable. */
function valuesOf(object: object): unknown[] {
  return Object.getOwnPropertyNames(object).map((name) => (object as Fields)[name]);
}

function isRefusal(text: unknown): text is string {
  return typeof text === "string" && addon().checkFailure(NOT_HELD, text) !== null;
}

const WANTED =
  "tx must be a transaction of postgres.js, or a pg Client or PoolClient after its BEGIN; for other clients there is guardQuery()";

/**
 * How to run a statement in `tx`.
 *
 * @throws LockError `InvalidArgument` for what is no transaction
 */
function runIn(tx: unknown): Run {
  if ((typeof tx !== "object" && typeof tx !== "function") || tx === null) throw invalid(WANTED);
  const { unsafe, savepoint, query, connectionParameters, totalCount } = tx as Record<
    string,
    unknown
  >;
  if (typeof unsafe === "function") {
    if (typeof savepoint !== "function") {
      throw invalid("tx must be what sql.begin() gives to its function, and not the client");
    }
    const target = tx as {
      unsafe: (text: string, values: string[], options: object) => PromiseLike<unknown>;
    };
    // Prepared, as statements of postgres.js are, unless its user has turned that off.
    return async ({ text, values }) => {
      await target.unsafe(text, values, { prepare: true });
    };
  }
  if (typeof totalCount === "number") {
    throw invalid(
      "tx must be a client that the pool has given, in a transaction, and not the pool",
    );
  }
  if (typeof query !== "function" || typeof connectionParameters !== "object") {
    throw invalid(WANTED);
  }
  return runOnClient(tx as Connected);
}

/** The last word of the server on whether a client is in a transaction. Weak, because clients come and go. */
const states = new WeakMap<object, { status?: string | undefined }>();

function runOnClient(client: Connected): Run {
  const { connection } = client;
  let state = states.get(client);
  if (state === undefined && typeof connection?.on === "function") {
    const heard: { status?: string | undefined } = {};
    connection.on("readyForQuery", ({ status }) => {
      heard.status = status;
    });
    states.set(client, heard);
    state = heard;
  }
  return async ({ text, values }) => {
    await client.query(text, values);
    // Outside of a transaction the check was over with its statement.
    if (state?.status === "I")
      throw invalid("tx must be in a transaction: BEGIN has to come first");
  };
}

/** The error to throw for one of a client's, or of the checks here. */
async function judged(error: unknown, lease: Lease, direct: DirectAccess): Promise<unknown> {
  if (error instanceof LockError) return error;
  const { code, message } = (error ?? {}) as { code?: unknown; message?: unknown };
  const isTold = typeof code === "string" && typeof message === "string";
  const found = isTold ? addon().checkFailure(code, message) : null;
  if (found === null) return error;
  const judgement = new LockError(found.code as LockErrorCode, found.message, { cause: error });
  if (found.code === "LockLost") return await notFound(lease, direct, error);
  // The server has failed as for a lock that is lost, and says what else it may be: then that, if the store has the lock.
  const isUnsure = found.code !== "InvalidArgument" && code === NOT_HELD;
  return isUnsure ? await notFound(lease, direct, error, judgement) : judgement;
}
