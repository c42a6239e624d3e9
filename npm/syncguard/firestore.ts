/** `syncguard/firestore` */

import { createFirestoreBackend } from "./firestore/backend.js";
import type {
  FirestoreBackendOptions,
  FirestoreCapabilities,
  FirestoreClient,
  FirestoreConfig,
  FirestoreConnectionOptions,
  LockDocument,
} from "./firestore/types.js";
import { createAutoLock } from "./lock/lock.js";
import type { BoundLock } from "./lock/types.js";

export {
  createFirestoreBackend,
  type FirestoreBackendOptions,
  type FirestoreCapabilities,
  type FirestoreClient,
  type FirestoreConfig,
  type FirestoreConnectionOptions,
  type LockDocument,
};

/** `lock()` bound to a Firestore backend: see {@link createFirestoreBackend}. */
export function createLock(
  db?: FirestoreClient | FirestoreConnectionOptions,
  options?: FirestoreBackendOptions,
): BoundLock<FirestoreCapabilities> {
  return createAutoLock(createFirestoreBackend(db, options));
}
