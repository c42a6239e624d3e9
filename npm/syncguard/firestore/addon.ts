/** Opens stores on Firestore, and the requests that they make to a client of the user's. */

import { addon, callAddon } from "../native/addon.js";
import type {
  FirestoreConnection,
  FirestoreLockOptions,
  FirestoreSettings,
} from "../native/exports.js";
import { withClient } from "../native/operations.js";
import { openStore, type Store } from "../native/store.js";

export type FirestoreRef = { collection: string; id: string };

/**
 * Documents by name; all documents in which the field has one of the values, of which a query may name so many as stand
 * together; or all whose ids are from `from` on, before `before`.
 */
export type FirestoreReads =
  | { documents: FirestoreRef[] }
  | { collection: string; field: string; oneOf: string[][] }
  | { collection: string; from: string; before: string; limit: number | null };

export type FirestoreWrite =
  | { set: FirestoreRef; fields: Record<string, string | number> }
  | { update: FirestoreRef; fields: Record<string, string | number> }
  | { delete: FirestoreRef };

/**
 * A request to a Firestore client. Reads are answered with the time and the documents. A transaction that `open` has
 * started, under a number, waits for `more`, `commit` or `rollback`, at most until its limit.
 */
export type FirestoreCall =
  | { read: FirestoreReads }
  | { open: number; read: FirestoreReads; limitMs: number }
  | { more: number; read: FirestoreReads }
  | { commit: number; writes: FirestoreWrite[] }
  | { rollback: number }
  | FirestoreWarning;

/** That several documents have the same lock id; or that something was refused because the clock is so far ahead. */
export type FirestoreWarning =
  { duplicate: { lockIdHash: string; live: number; expired: number } } | { clockAheadMs: number };

export function createFirestoreConnection(settings: FirestoreSettings): FirestoreConnection {
  return callAddon(() => new (addon().FirestoreConnection)(settings));
}

/** `warn` is called for documents that no correct client writes, and for refusals because of the clock. */
export function openFirestore(
  connection: FirestoreConnection,
  locks: FirestoreLockOptions,
  warn: (warning: FirestoreWarning) => Promise<unknown>,
): Store {
  return withClient(warn, (client) =>
    openStore((completions) =>
      addon().NativeBackend.firestore(completions, connection, locks, client),
    ),
  );
}

/** Every transaction and every read goes through `run`, which uses a client of the user's. */
export function openFirestoreOverClient(
  run: (call: FirestoreCall) => Promise<unknown>,
  locks: FirestoreLockOptions,
): Store {
  return withClient(run, (client) =>
    openStore((completions) =>
      addon().NativeBackend.firestoreOverClient(completions, client, locks),
    ),
  );
}
