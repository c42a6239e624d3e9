/** Checks locks in users' own transactions. */

import { checkNotLost, notFound } from "../lock/guard.js";
import type { Lease } from "../lock/lease.js";
import type { FirestoreGuard } from "../lock/types.js";
import { addon, callAddon } from "../native/addon.js";
import type { Store } from "../native/store.js";
import { invalid } from "../options/validation.js";
import { plain } from "./client.js";

type Snapshot = { data: () => Record<string, unknown> | undefined };
type Reference = object;
type Transaction = {
  get: (reference: Reference) => Promise<Snapshot>;
  getAll: (...references: Reference[]) => Promise<Snapshot[]>;
  /** The client that it belongs to: nothing else knows that. */
  _firestore?: { collection?: (name: string) => { doc: (id: string) => Reference } };
};

/** What the locks of a backend have beside the methods of all. */
export function guarding(
  store: Store,
  collection: string | undefined,
): (lease: Lease) => FirestoreGuard {
  return (lease) => ({
    guard: async (tx) => {
      const read = readerIn(tx);
      checkNotLost(lease);
      const places = lease.storedKeys.map((key) =>
        callAddon(() => addon().firestoreLock(collection, key)),
      );
      const found = await read(places);
      const nowMs = Date.now();
      const isHeld = lease.lockId.split(",").every((lockId, number) => {
        const fields = found[number]?.data();
        if (fields === undefined) return false;
        const json = JSON.stringify(plain(fields));
        return callAddon(() => addon().firestoreHolds(json, lockId, nowMs));
      });
      if (!isHeld) throw await notFound(lease, store);
    },
  });
}

/**
 * How to read documents in `tx`.
 *
 * @throws LockError `InvalidArgument` for what is no transaction
 */
function readerIn(
  tx: unknown,
): (places: readonly { collection: string; id: string }[]) => Promise<Snapshot[]> {
  const { get, getAll, _firestore: db } = (tx ?? {}) as Partial<Transaction>;
  if (typeof get !== "function" || typeof getAll !== "function") {
    throw invalid(
      "tx must be a Transaction of @google-cloud/firestore, as runTransaction() gives it",
    );
  }
  if (typeof db?.collection !== "function") {
    throw invalid(
      "tx belongs to no Firestore that can be seen: it must be a Transaction of @google-cloud/firestore",
    );
  }
  const references = (places: readonly { collection: string; id: string }[]): Reference[] =>
    places.map(({ collection, id }) => {
      const all = (db as Required<typeof db>).collection(collection);
      return all.doc(id);
    });
  return async (places) => await (tx as Transaction).getAll(...references(places));
}
