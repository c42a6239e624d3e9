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

/**
 * `lock()` bound to a Firestore backend.
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
): BoundLock<FirestoreCapabilities> {
  return createAutoLock(createFirestoreBackend(db, options));
}
