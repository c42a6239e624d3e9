/** What locks in PostgreSQL can do besides. The functions need no `this` and may be destructured. */
export interface PostgresGuard {
  /**
   * Checks in a transaction of yours, in the database of the locks, that the lock is held, or all of several, and keeps it from being
   * taken over until the transaction ends, however long that takes: what is committed was written by the holder. One round trip.
   *
   * If the lock is gone, the transaction has failed, so that it cannot be committed even if the error is caught, also if `tx` is a
   * savepoint in it.
   *
   * @param tx - what postgres.js' `sql.begin()` gives, or a `Client` or `PoolClient` of pg after its `BEGIN`; for others there is
   *   {@link PostgresGuard.guardQuery}
   * @throws LockError `LockLost` if the lock is not held any more, of which its `signal` hears, too; `InvalidArgument` for what is no
   *   transaction, or one of another database, and where the index on `lock_id` is missing; `ServiceUnavailable` if the
   *   transaction's snapshot is older than the lock's last extension (`REPEATABLE READ`, `SERIALIZABLE`): run it again;
   *   `AuthFailed` if the role of the transaction has not the rights, or row level security hides the lock from it; or the error of
   *   your client
   * @example
   * ```ts
   * import postgres from "postgres";
   * import { createPostgresBackend } from "syncguard/postgres";
   *
   * const sql = postgres("postgres://app:secret@localhost/app");
   * const backend = createPostgresBackend(sql);
   * await using held = await backend.lock("account:1");
   * await sql.begin(async (tx) => {
   *   await held.guard(tx);
   *   await tx`UPDATE accounts SET balance = balance - 10 WHERE id = 1`;
   * });
   * ```
   */
  readonly guard: (tx: PostgresTransaction) => Promise<void>;
  /**
   * The statement of {@link PostgresGuard.guard}, for clients that it does not know: run it in your outermost transaction, before or
   * after its writes. Outside of a transaction it protects nothing. It fails if the lock is gone, with a message that contains `LockLost`,
   * and the transaction with it, but in a savepoint the savepoint alone; otherwise it gives a row that need not be looked at.
   *
   * @throws LockError `LockLost` if it is known already
   * @example
   * ```ts
   * import { createPostgresBackend } from "syncguard/postgres";
   *
   * const backend = createPostgresBackend("postgres://app:secret@localhost/app");
   * await using held = await backend.lock("account:1");
   * const { text, values } = held.guardQuery();
   * console.log(text, values); // for Prisma: tx.$queryRawUnsafe(text, ...values)
   * ```
   */
  readonly guardQuery: () => GuardQuery;
  /**
   * Whether an error that your client threw is that of a guard that refused: the server's error is found in those of Prisma, Drizzle,
   * Kysely, Knex and TypeORM. If so, the store is asked for the lock, and `signal` is aborted if the lock is gone.
   *
   * @param error - what was thrown by your transaction
   * @example
   * ```ts
   * import { createPostgresBackend } from "syncguard/postgres";
   *
   * declare const transaction: (text: string, values: string[]) => Promise<void>;
   * const backend = createPostgresBackend("postgres://app:secret@localhost/app");
   * await using held = await backend.lock("account:1");
   * const { text, values } = held.guardQuery();
   * try {
   *   await transaction(text, values);
   * } catch (error) {
   *   if (!(await held.guardFailed(error))) throw error;
   *   console.log("nothing was written", held.signal.aborted);
   * }
   * ```
   */
  readonly guardFailed: (error: unknown) => Promise<boolean>;
}

/** What the lock of `once()` in PostgreSQL can do besides. The functions need no `this` and may be destructured. */
export interface PostgresDone {
  /**
   * As {@link PostgresGuard.guard}, and stores in your transaction that the period is done: if the transaction is committed, it is, and
   * never again; else nothing of either is there. So what the transaction writes is done exactly once.
   *
   * Call it last: who wants the lock when its time is over waits from then on until the transaction ends. Then let the function
   * end, which frees the lock.
   *
   * @param tx - as for {@link PostgresGuard.guard}
   * @throws LockError as {@link PostgresGuard.guard}; `InvalidArgument` also if the table of fence counters has no columns for it
   * @example
   * ```ts
   * import postgres from "postgres";
   * import { createPostgresBackend } from "syncguard/postgres";
   *
   * const sql = postgres("postgres://app:secret@localhost/app");
   * const backend = createPostgresBackend(sql);
   * await backend.once("interest", { due: "2026-11" }, async ({ done }) => {
   *   await sql.begin(async (tx) => {
   *     await tx`UPDATE accounts SET balance = balance * 1.01`;
   *     await done(tx);
   *   });
   * });
   * ```
   */
  readonly done: (tx: PostgresTransaction) => Promise<void>;
  /**
   * The statement of {@link PostgresDone.done}, for clients that it does not know: run it in your outermost transaction, after its writes.
   *
   * @throws LockError `LockLost` if it is known already
   * @example
   * ```ts
   * import { createPostgresBackend } from "syncguard/postgres";
   *
   * const backend = createPostgresBackend("postgres://app:secret@localhost/app");
   * await backend.once("interest", { due: "2026-11" }, ({ doneQuery }) => {
   *   const { text, values } = doneQuery();
   *   console.log(text, values); // for Prisma: tx.$queryRawUnsafe(text, ...values)
   * });
   * ```
   */
  readonly doneQuery: () => GuardQuery;
}

/** A statement for a transaction of yours. */
export interface GuardQuery {
  /** The SQL, with `$1` … for the values. */
  text: string;
  /** The values, all of them texts. */
  values: string[];
}

/** A transaction of postgres.js, or a pg `Client` or `PoolClient` in one. */
export type PostgresTransaction =
  | {
      /** Runs a statement. */
      unsafe: (...args: never[]) => unknown;
      /** What tells a transaction from the instance. */
      savepoint: (...args: never[]) => unknown;
    }
  | {
      /** Runs a statement. */
      query: (...args: never[]) => unknown;
      /** A pool has none. */
      escapeIdentifier: (...args: never[]) => unknown;
    };
