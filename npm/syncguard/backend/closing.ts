/** The end of a backend. What is still allowed until then, its grants say. */

import { setImmediate } from "node:timers";
import type { Store } from "../native/store.js";
import type { Grants } from "../holding/grants.js";

/** Read when this module is loaded, so that fake timers in users' tests cannot delay closing a backend. */
const afterMicrotasks = setImmediate;

/** Gives what closes a backend, once however often it is called. */
export function closing(store: Pick<Store, "close">, grants: Grants): () => Promise<void> {
  let closed: Promise<void> | undefined;
  return () => (closed ??= close(store, grants));
}

/** Waits until no acquisition can be granted a lock any more. Until then, releases are still allowed. */
async function close(store: Pick<Store, "close">, grants: Grants): Promise<void> {
  grants.stage = "closing";
  grants.refuseWaiters();
  await grants.idle();
  // lock() checks its signals once more after an attempt, and then releases by itself. It does so in this turn of the
  // event loop, however many wrappers are in between.
  await new Promise<void>((resolve) => {
    afterMicrotasks(resolve);
  });
  await grants.idle();
  grants.stage = "closed";
  await store.close();
}
