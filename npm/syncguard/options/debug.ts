/** What `NODE_DEBUG=syncguard` prints on stderr: which way a backend has to its server, and why. Names of settings, no values. */

import { debuglog } from "node:util";
import type { BackendTransport } from "../lock/types.js";

const log = debuglog("syncguard");

type Way =
  | { readonly by: "settings" }
  | { readonly by: "client's settings" }
  | { readonly through: "client"; readonly obstacle?: string };

/** The way of a backend on `store`, for `backend.transport`. */
export function transportBy(store: string, way: Way): BackendTransport {
  const transport = describe(way);
  if (log.enabled) {
    const { way: name, reason } = transport;
    log("%s", `${store}: ${name === "native" ? reason : `through the client, because ${reason}`}`);
  }
  return Object.freeze(transport);
}

/** Tells where the default backend comes from. */
export function tellDefault(what: string): void {
  if (log.enabled) log("%s", `default backend: ${what}`);
}

function describe(way: Way): BackendTransport {
  if ("through" in way) {
    const reason =
      way.obstacle === undefined
        ? 'transport is "client"'
        : `a connection of its own cannot take over ${way.obstacle} of the client`;
    return { way: "client", reason };
  }
  const by =
    way.by === "settings"
      ? "the URL or options that were given"
      : "the settings read from the client";
  return { way: "native", reason: `a connection of its own, by ${by}` };
}
