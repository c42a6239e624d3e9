/** By which events clients of Redis show what becomes of their connections. */

import { errorMonitor } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import { types } from "node:util";
import { untraced } from "../native/untraced.js";
import type { ConnectionEvents } from "../options/client-events.js";

/** Those of all kinds of clients, because none of them gives another's a different meaning. */
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
  "topology-change": (event, show) => {
    const { type } = (event ?? {}) as { readonly type?: unknown };
    if (type === "MASTER_CHANGE") show("replaced");
  },
  // Its pools, and the clusters of its version 4, show only errors; Sentinel clients those of the primary if they are told to. An error to
  // which nobody else listens is still thrown.
  [errorMonitor]: (_, show, client) => {
    if (nodesOf(client) !== undefined) onceReady(client, () => show("replaced"));
    else if (isOfSeveral(client)) {
      show("lost");
      void onceAnswering(client, () => show("made"));
    }
  },
};

/** The client of one node of a cluster of node-redis. */
type NodeClient = {
  readonly isReady?: unknown;
  once: (event: "ready", listener: () => void) => unknown;
};

/** Those of whose next connection somebody will hear. */
const awaited = new WeakSet();

/** Calls `tell` as soon as a node has a connection that has none now. */
function onceReady(cluster: object, tell: () => void): void {
  for (const node of nodesOf(cluster) ?? []) {
    const { client } = (node ?? {}) as { readonly client?: Partial<NodeClient> };
    if (client?.isReady !== false || client.once === undefined || awaited.has(client)) continue;
    awaited.add(client);
    client.once("ready", () => {
      awaited.delete(client);
      tell();
    });
  }
}

/** The nodes of a cluster of node-redis. */
function nodesOf(client: object): Iterable<unknown> | undefined {
  const { nodeByAddress } = client as { readonly nodeByAddress?: unknown };
  return types.isMap(nodeByAddress) ? nodeByAddress.values() : undefined;
}

/** A pool or a Sentinel client of node-redis. */
type OfSeveral = {
  readonly eval: (script: string, options: { keys: string[]; arguments: string[] }) => unknown;
};

function isOfSeveral(client: object): client is OfSeveral {
  const { totalClients, getMasterNode } = client as Record<string, unknown>;
  return typeof totalClients === "number" || typeof getMasterNode === "function";
}

/** Those that are being asked, and whether they have lost a connection meanwhile. */
const asked = new WeakMap<object, boolean>();

/** A client that refuses calls while it has no connection is asked for longer than it waits, by default, to connect again. */
const TRIES = 15;
const PAUSE_MS = 200;

/** Calls `tell` when a client answers after the last loss. It does not show that it has a connection again. */
async function onceAnswering(client: OfSeveral, tell: () => void): Promise<void> {
  const isAsked = asked.has(client);
  asked.set(client, isAsked);
  if (isAsked) return;
  let isAnswering: boolean;
  do {
    asked.set(client, false);
    isAnswering = await answers(client);
  } while (asked.get(client) === true);
  asked.delete(client);
  if (isAnswering) tell();
}

async function answers(client: OfSeveral): Promise<boolean> {
  for (let tries = 0; tries < TRIES; tries += 1) {
    try {
      await untraced(() => client.eval("return 1", { keys: [], arguments: [] }));
      return true;
    } catch {
      await pause(PAUSE_MS, undefined, { ref: false });
    }
  }
  return false;
}
