/** How a store on Firestore is opened, and what it asks a client of the user's for. */

import { addon, callAddon } from "../native/addon.js";
import type {
  FirestoreConnection,
  FirestoreLockOptions,
  FirestoreSettings,
} from "../native/exports.js";
import { withClient } from "../native/operations.js";
import { openStore, type Store } from "../native/store.js";

export type FirestoreRef = { collection: string; id: string };

/** Documents by name, or all whose field has that value. */
export type FirestoreReads =
  { documents: FirestoreRef[] } | { collection: string; field: string; equals: string };

export type FirestoreWrite =
  | { set: FirestoreRef; fields: Record<string, string | number> }
  | { update: FirestoreRef; fields: Record<string, string | number> }
  | { delete: FirestoreRef };

/**
 * A call for a Firestore client to carry out. Reads are answered with the time and the documents. A transaction that
 * `open` started, by a number, waits for `commit` or `rollback`, at most for its limit.
 */
export type FirestoreCall =
  | { read: FirestoreReads }
  | { open: number; read: FirestoreReads; limitMs: number }
  | { commit: number; writes: FirestoreWrite[] }
  | { rollback: number }
  | FirestoreWarning;

/** Several documents carry one lock id. */
export type FirestoreWarning = {
  duplicate: { lockIdHash: string; live: number; expired: number };
};

export function createFirestoreConnection(settings: FirestoreSettings): FirestoreConnection {
  return callAddon(() => new addon.FirestoreConnection(settings));
}

/** `warn` hears of what no correct client does. */
export function openFirestore(
  connection: FirestoreConnection,
  locks: FirestoreLockOptions,
  warn: (warning: FirestoreWarning) => Promise<unknown>,
): Store {
  return withClient(warn, (client) =>
    openStore((completions) =>
      addon.NativeBackend.firestore(completions, connection, locks, client),
    ),
  );
}

/** Every transaction and every read goes through `run`: a client of the user's. */
export function openFirestoreOverClient(
  run: (call: FirestoreCall) => Promise<unknown>,
  locks: FirestoreLockOptions,
): Store {
  return withClient(run, (client) =>
    openStore((completions) => addon.NativeBackend.firestoreOverClient(completions, client, locks)),
  );
}
