/** By which events clients of Redis show what becomes of their connections. */

import { types } from "node:util";
import type { ConnectionEvents } from "../options/client-events.js";

/**
 * Those of all kinds of clients, because none of them gives another's a different meaning. A pool of node-redis has none of them, nor has a
 * cluster of its version 4.
 */
export const CONNECTION_EVENTS: ConnectionEvents = {
  // Of ioredis and node-redis.
  close: "lost",
  reconnecting: "lost",
  end: "lost",
  ready: "made",
  // Of clusters of ioredis. A node whose connection has ended is taken out, and in again when the cluster is asked for its nodes.
  "-node": "lost",
  refresh: "made",
  "+node": "replaced",
  // Of clusters of node-redis. A node is ready only once, by its event.
  "node-reconnecting": (_, show, client) => onceReady(client, () => show("replaced")),
  "node-ready": "replaced",
  // Of its Sentinel clients.
  "client-error": (event, show) => {
    if (typeOf(event) === "MASTER") show("lost");
  },
  "topology-change": (event, show) => {
    if (typeOf(event) === "MASTER_CHANGE") show("replaced");
  },
};

function typeOf(event: unknown): unknown {
  return ((event ?? {}) as { readonly type?: unknown }).type;
}

/** The client of one node of a cluster of node-redis. */
type NodeClient = {
  readonly isReady?: unknown;
  once: (event: "ready", listener: () => void) => unknown;
};

/** Those of whose next connection somebody will hear. */
const awaited = new WeakSet();

/** Calls `tell` as soon as a node has a connection that has none now. */
function onceReady(cluster: object, tell: () => void): void {
  const { nodeByAddress } = cluster as { readonly nodeByAddress?: unknown };
  if (!types.isMap(nodeByAddress)) return;
  for (const node of nodeByAddress.values()) {
    const { client } = (node ?? {}) as { readonly client?: Partial<NodeClient> };
    if (client?.isReady !== false || client.once === undefined || awaited.has(client)) continue;
    awaited.add(client);
    client.once("ready", () => {
      awaited.delete(client);
      tell();
    });
  }
}
