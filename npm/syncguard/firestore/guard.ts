/** Checks locks in users' own transactions. */

import type { StoreMembersOf } from "../backend/backend.js";
import { checkNotLost, notFound } from "../holding/guard.js";
import type { DirectAccess } from "../holding/internals.js";
import type { Lease } from "../holding/lease.js";
import type { FirestoreDone, FirestoreGuard } from "./members.js";
import { addon, callAddon } from "../native/addon.js";
import type { LockPlace } from "../native/exports.js";
import { invalid } from "../options/validation.js";
import { plain } from "./client.js";
import type { FirestoreBackendOptions } from "./types.js";

type Snapshot = {
  data: () => Record<string, unknown> | undefined;
  /** Firestore's time. */
  readTime?: { toMillis?: () => unknown } | undefined;
};
type Reference = object;
type Transaction = {
  get: (reference: Reference) => Promise<Snapshot>;
  getAll: (...references: Reference[]) => Promise<Snapshot[]>;
  set: (reference: Reference, fields: object) => unknown;
  /** The client that it belongs to: nothing else knows that. */
  _firestore?: { collection?: (name: string) => { doc: (id: string) => Reference } };
};

/** A transaction, and how to name the documents of its database. */
type Opened = { tx: Transaction; document: (collection: string, id: string) => Reference };

/** What the locks of a backend have beside the methods of all. */
export function guarding({ collection, fenceCollection }: FirestoreBackendOptions): StoreMembersOf {
  const placeOf = (key: string): LockPlace =>
    callAddon(() => addon().firestoreLock(collection, fenceCollection, key));
  return (lease, direct) => {
    const guard: FirestoreGuard = {
      guard: async (tx) => {
        await check(openedIn(tx), lease, lease.storedKeys.map(placeOf), [], direct);
      },
    };
    const { due } = lease;
    if (due === undefined) return guard;
    const done: FirestoreDone = {
      done: async (tx) => {
        const opened = openedIn(tx);
        const [key] = lease.storedKeys as [string];
        const place = placeOf(key);
        const mark = opened.document(place.markCollection, place.markId);
        const [stored] = await check(opened, lease, [place], [mark], direct);
        lease.noteDone();
        const fields = json(stored?.data() ?? {});
        const next = callAddon(() =>
          addon().firestoreDone(fields, key, due, lease.lockId, Date.now()),
        );
        // A later period that somebody has set by force stays.
        if (next !== null) opened.tx.set(mark, JSON.parse(next) as object);
      },
    };
    return { ...guard, ...done };
  };
}

/**
 * Reads the locks in a transaction, and beside them `others`, which it gives.
 *
 * @throws LockError `LockLost` if one of them is not there
 */
async function check(
  { tx, document }: Opened,
  lease: Lease,
  places: readonly LockPlace[],
  others: readonly Reference[],
  direct: DirectAccess,
): Promise<Snapshot[]> {
  checkNotLost(lease);
  const locks = places.map(({ collection, id }) => document(collection, id));
  const shared = places.filter(({ groupId }) => groupId !== undefined);
  const groups = shared.map(({ collection, groupId = "" }) => document(collection, groupId));
  const { lockIds } = lease;
  const found = await tx.getAll(...locks, ...groups, ...others);
  const ownMs = Date.now();
  const isHeld = lockIds.every((lockId, number) => {
    // It was released by its id meanwhile.
    if (!lease.lockIds.includes(lockId)) return true;
    const fields = found[number]?.data();
    if (fields === undefined) return false;
    // Look-ups may go by either clock, and whoever takes the lock over writes to its document: the earlier time is safe.
    const readMs = found[number]?.readTime?.toMillis?.();
    const nowMs = typeof readMs === "number" ? Math.min(readMs, ownMs) : ownMs;
    const holds = callAddon(() => addon().firestoreHolds(json(fields), lockId, nowMs));
    const place = places[number];
    const groupId = place?.groupId;
    if (!holds || groupId === undefined) return holds;
    const group = found[locks.length + shared.indexOf(place as LockPlace)]?.data();
    if (group === undefined) return false;
    return callAddon(() => addon().firestoreShares(json(fields), groupId, json(group), nowMs));
  });
  if (!isHeld) throw await notFound(lease, direct);
  return found.slice(locks.length + groups.length);
}

function json(fields: Record<string, unknown>): string {
  return JSON.stringify(plain(fields));
}

/**
 * The transaction that `tx` is.
 *
 * @throws LockError `InvalidArgument` for what is no transaction
 */
function openedIn(tx: unknown): Opened {
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
  const { collection } = db as Required<typeof db>;
  return {
    tx: tx as Transaction,
    document: (name, id) => collection.call(db, name).doc(id),
  };
}
