/** Checks locks in users' own transactions. */

import type { StoreMembersOf } from "../lock/backend.js";
import { checkNotLost, notFound } from "../lock/guard.js";
import type { DirectAccess } from "../lock/internals.js";
import type { Lease } from "../lock/lease.js";
import type {
  GuardQuery,
  PostgresDone,
  PostgresGuard,
  PostgresTransaction,
} from "../lock/types.js";
import { addon } from "../native/addon.js";
import { LockError, type LockErrorCode } from "../native/errors.js";
import type { Store } from "../native/store.js";
import { invalid } from "../options/validation.js";

/** Runs a statement in a transaction. */
type Run = (query: GuardQuery) => PromiseLike<unknown>;

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
      let known: GuardQuery | undefined;
      return {
        run: async (tx: PostgresTransaction): Promise<void> => {
          const run = runIn(tx);
          checkNotLost(lease);
          try {
            await run((known ??= query()));
          } catch (error) {
            throw await judged(error, lease, direct);
          }
        },
        query: (): GuardQuery => {
          checkNotLost(lease);
          return query();
        },
      };
    };
    const check = both(() => store.check(lease.lockId));
    const guard: PostgresGuard = { guard: check.run, guardQuery: check.query };
    const { due } = lease;
    if (due === undefined) return guard;
    const storing = both(() => {
      lease.mayBeDone = true;
      const [key] = lease.storedKeys;
      return store.check(lease.lockId, key, due);
    });
    const done: PostgresDone = { done: storing.run, doneQuery: storing.query };
    return { ...guard, ...done };
  };
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
    return ({ text, values }) => target.unsafe(text, values, { prepare: true });
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
  if (found.code === "LockLost") return await notFound(lease, direct, error);
  return new LockError(found.code as LockErrorCode, found.message, { cause: error });
}
