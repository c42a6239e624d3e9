/** What the addon has for Firestore: the settings and calls that cross, and how a store is opened. */

import { callAddon, type Completions, exported, type Handle } from "../native/addon.js";
import { withClient } from "../native/operations.js";
import { openStore, type Store } from "../native/store.js";
import type { Roots } from "../options/node-trust.js";

/** How locks are kept in Firestore, whoever carries them there. */
export type FirestoreLocks = {
  collection?: string;
  fenceCollection?: string;
  cleanupInIsLocked?: boolean;
  operationTimeoutMs?: number;
};

/** Which Firestore database, and who we are to it. What is not said is taken from the environment. */
export type FirestoreSettings = {
  projectId?: string;
  databaseId?: string;
  /** The JSON of a key file. */
  credentials?: string;
  keyFilename?: string;
  /** Another server than Google's: `host` or `host:port`. */
  host?: string;
  /** Whether that server speaks TLS; it does if this is not said. */
  ssl?: boolean;
  emulatorHost?: string;
  /** Whom to trust. */
  defaultRoots?: Roots;
};

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

/** A connection for several backends; it is made when it is needed. */
export interface FirestoreConnection {
  readonly [Symbol.toStringTag]?: "FirestoreConnection";
}

const addon = exported as {
  FirestoreConnection: new (settings: FirestoreSettings) => FirestoreConnection;
  NativeBackend: {
    firestore(
      completions: Completions,
      connection: FirestoreConnection,
      locks: FirestoreLocks,
      warn: number,
    ): Handle;
    firestoreOverClient(completions: Completions, client: number, locks: FirestoreLocks): Handle;
  };
};

export function createFirestoreConnection(settings: FirestoreSettings): FirestoreConnection {
  return callAddon(() => new addon.FirestoreConnection(settings));
}

/** `warn` hears of what no correct client does. */
export function openFirestore(
  connection: FirestoreConnection,
  locks: FirestoreLocks,
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
  locks: FirestoreLocks,
): Store {
  return withClient(run, (client) =>
    openStore((completions) => addon.NativeBackend.firestoreOverClient(completions, client, locks)),
  );
}
