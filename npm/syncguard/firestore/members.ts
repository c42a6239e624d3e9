/** What locks in Firestore can do besides. The function needs no `this` and may be destructured. */
export interface FirestoreGuard {
  /**
   * Reads the lock in a transaction of yours, in the database of the locks: if somebody takes it over before the transaction is
   * committed, Firestore runs your function again, and then this fails. So what is committed was written by the holder.
   *
   * Call it before the first write, as every read of a transaction.
   *
   * @param tx - a `Transaction` of `@google-cloud/firestore`
   * @throws LockError `LockLost` if the lock is not held any more, of which its `signal` hears, too; `InvalidArgument` for what is no
   *   transaction, or one of another database; or the error of your client
   * @example
   * ```ts
   * import { Firestore } from "@google-cloud/firestore";
   * import { createFirestoreBackend } from "syncguard/firestore";
   *
   * const db = new Firestore();
   * const backend = createFirestoreBackend(db);
   * await using held = await backend.lock("account:1");
   * await db.runTransaction(async (tx) => {
   *   await held.guard(tx);
   *   tx.update(db.doc("accounts/1"), { checked: true });
   * });
   * ```
   */
  readonly guard: (tx: FirestoreTransaction) => Promise<void>;
}

/** What the lock of `once()` in Firestore can do besides. The function needs no `this` and may be destructured. */
export interface FirestoreDone {
  /**
   * As {@link FirestoreGuard.guard}, and stores in your transaction that the period is done: if the transaction is committed, it is, and
   * never again; else nothing of either is there. So what the transaction writes is done exactly once.
   *
   * It reads and writes, so call it after your reads and before your writes. Then let the function end, which frees the lock.
   *
   * @param tx - a `Transaction` of `@google-cloud/firestore`
   * @throws LockError as {@link FirestoreGuard.guard}
   * @example
   * ```ts
   * import { Firestore } from "@google-cloud/firestore";
   * import { createFirestoreBackend } from "syncguard/firestore";
   *
   * const db = new Firestore();
   * const backend = createFirestoreBackend(db);
   * await backend.once("report", { due: "2026-11" }, async ({ done }) => {
   *   await db.runTransaction(async (tx) => {
   *     await done(tx);
   *     tx.set(db.doc("reports/2026-11"), { sum: 42 });
   *   });
   * });
   * ```
   */
  readonly done: (tx: FirestoreTransaction) => Promise<void>;
}

/** A `Transaction` of `@google-cloud/firestore`. */
export interface FirestoreTransaction {
  /** Reads a document. */
  get: (...args: never[]) => unknown;
  /** Reads several documents. */
  getAll: (...args: never[]) => unknown;
}
