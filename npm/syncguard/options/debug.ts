/** What `NODE_DEBUG=syncguard` prints on stderr: which way a backend has to its server, and why. Names of settings, no values. */

import { debuglog } from "node:util";

const log = debuglog("syncguard");

type Way =
  | { readonly by: "settings" }
  | { readonly by: "client's settings" }
  | { readonly through: "client"; readonly obstacle?: string };

/** Tells of the way of a backend on `store`. */
export function tellWay(store: string, way: Way): void {
  if (!log.enabled) return;
  log("%s", `${store}: ${wordsFor(way)}`);
}

/** Tells where the default backend comes from. */
export function tellDefault(what: string): void {
  if (log.enabled) log("%s", `default backend: ${what}`);
}

function wordsFor(way: Way): string {
  if ("through" in way) {
    const why =
      way.obstacle === undefined
        ? 'transport is "client"'
        : `a connection of its own cannot take over ${way.obstacle} of the client`;
    return `through the client, because ${why}`;
  }
  return way.by === "settings"
    ? "a connection of its own, by the URL or options that were given"
    : "a connection of its own, by the settings read from the client";
}
