import { type DirectAccess, directAccess } from "../holding/internals.js";
import type { SyncGuardBackend } from "../values/types.js";

/** What looks at whole stores need of a backend, and its public interface does not have. */
export function direct(backend: SyncGuardBackend): DirectAccess {
  return directAccess(backend) as DirectAccess;
}
