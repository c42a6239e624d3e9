/** Closes a backend. Its grants say what is still allowed until the end. */

import { setImmediate } from "node:timers";
import type { Store } from "../native/store.js";
import type { Grants } from "../holding/grants.js";

/** Read when this module is loaded, so that fake timers in users' tests cannot delay closing a backend. */
const afterMicrotasks = setImmediate;

/** Makes the function that closes a backend. However often it is called, it does so once. */
export function closing(store: Pick<Store, "close">, grants: Grants): () => Promise<void> {
  let closed: Promise<void> | undefined;
  return () => (closed ??= close(store, grants));
}

/** Waits until no acquisition can be granted a lock any more, and closes the store then. Releases are allowed until that moment. */
async function close(store: Pick<Store, "close">, grants: Grants): Promise<void> {
  grants.stage = "closing";
  grants.refuseWaiters();
  await grants.idle();
  // After an attempt, lock() checks its signals once more, and may release the lock by itself. It does so in this turn of the
  // event loop, however many wrappers are in between.
  await new Promise<void>((resolve) => {
    afterMicrotasks(resolve);
  });
  await grants.idle();
  grants.stage = "closed";
  await store.close();
}
