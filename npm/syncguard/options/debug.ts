/** What `NODE_DEBUG=syncguard` prints on stderr: which way a backend has to its server, and why. Names of settings, no values. */

import { debuglog } from "node:util";
import type { BackendTransport } from "./backend-transport.js";

const log = debuglog("syncguard");

/** The way of a backend on `store`, for `backend.transport`. */
export function tellTransport(
  store: string,
  way: BackendTransport["way"],
  reason: string,
): BackendTransport {
  if (log.enabled) {
    log("%s", `${store}: ${way === "native" ? reason : `through the client, because ${reason}`}`);
  }
  return Object.freeze({ way, reason });
}

/** Tells where the default backend comes from. */
export function tellDefault(what: string): void {
  if (log.enabled) log("%s", `default backend: ${what}`);
}
