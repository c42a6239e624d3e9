/** `syncguard/firestore` */

import "./native/required.js";
import { createFirestoreBackend } from "./firestore/backend.js";
import type {
  FirestoreBackendOptions,
  FirestoreCapabilities,
  FirestoreClient,
  FirestoreConfig,
  FirestoreConnectionOptions,
  LockDocument,
} from "./firestore/types.js";
import { createOwnLock } from "./backend/lock.js";
import type { ClosableLock } from "./values/types.js";
import type { FirestoreDone, FirestoreGuard, FirestoreTransaction } from "./firestore/members.js";

export {
  type FirestoreDone,
  type FirestoreGuard,
  type FirestoreTransaction,
  createFirestoreBackend,
  type FirestoreBackendOptions,
  type FirestoreCapabilities,
  type FirestoreClient,
  type FirestoreConfig,
  type FirestoreConnectionOptions,
  type LockDocument,
};

/**
 * `lock()` bound to a Firestore backend of its own, which `lock.close()` closes.
 *
 * @param db - as for {@link createFirestoreBackend}
 * @param options - as for {@link createFirestoreBackend}
 * @throws LockError `InvalidArgument` that names the setting
 * @example
 * ```ts
 * import { createLock } from "syncguard/firestore";
 *
 * const lock = createLock({ projectId: "my-project" });
 * await lock(({ fence }) => console.log("working under fence", fence), { key: "report:nightly" });
 * ```
 */
export function createLock(
  db?: FirestoreClient | FirestoreConnectionOptions,
  options?: FirestoreBackendOptions,
): ClosableLock<FirestoreCapabilities> {
  return createOwnLock(createFirestoreBackend(db, options));
}
