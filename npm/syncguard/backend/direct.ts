/** Runs further operations on the addon's store, in the way in which the backend runs its own. */

import { addContext } from "../native/errors.js";
import { settle } from "../native/outcome.js";
import { checkAborted } from "../native/signal.js";
import type { Store } from "../native/store.js";
import type { Grants } from "../holding/grants.js";
import type { DirectAccess } from "../holding/internals.js";

export function directOn(grants: Grants, store: Store): DirectAccess {
  return async (key, signal, operation) => {
    try {
      checkAborted(signal);
      grants.checkOpen();
      grants.start();
      try {
        return settle(await operation(store));
      } finally {
        grants.end();
      }
    } catch (error) {
      throw addContext(error, key);
    }
  };
}
