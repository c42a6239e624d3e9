/** Pools of clients that are driven, whose connections the user's own transactions may have. */

import { Failure } from "../native/outcome.js";
import type { Store } from "../native/store.js";
import type { ConnectionEvents } from "../options/client-events.js";
import type { PostgresClient } from "./types.js";

/** Of pg's pool, which also removes connections that it needs no more. postgres.js tells of none. */
export const CONNECTION_EVENTS: ConnectionEvents = {
  remove: (client, show) => {
    const { _queryable: isUsable } = (client ?? {}) as { readonly _queryable?: unknown };
    if (isUsable === false) show("lost");
  },
  acquire: "made",
};

/** A query of postgres.js, from when it is made until it has its answer. */
type PendingQuery = { readonly active?: unknown };

/** What has been asked of each client of postgres.js and has no answer yet: it does not tell how many wait. */
const asked = new WeakMap<object, Set<PendingQuery>>();

/** Notes a query of postgres.js, and forgets it when it has its answer. */
export async function noted<T>(client: object, query: PromiseLike<T> & PendingQuery): Promise<T> {
  let queries = asked.get(client);
  if (queries === undefined) asked.set(client, (queries = new Set()));
  queries.add(query);
  try {
    return await query;
  } finally {
    queries.delete(query);
  }
}

/** Whether a statement waits until a connection of the client's pool is free, as far as the client tells. */
function hasQueue(client: PostgresClient): boolean {
  for (const { active } of asked.get(client) ?? []) if (active === false) return true;
  const { waitingCount, idleCount, totalCount, options } = client as unknown as {
    readonly [Name in "waitingCount" | "idleCount" | "totalCount"]?: unknown;
  } & { readonly options?: { readonly max?: unknown } };
  // A pool with a limit of its own for that has none waiting any more when it is told of.
  const isFull = idleCount === 0 && totalCount === options?.max;
  return isFull || (typeof waitingCount === "number" && waitingCount > 0);
}

/**
 * Lets an acquisition whose time ends while it waits for a connection say so. One that fails for another reason waits for none, though
 * the release that undoes it may.
 */
export function tellingOfQueues(store: Store, client: PostgresClient): Store {
  const ask = store.acquire.bind(store);
  store.acquire = async (...args) => {
    const answer = await ask(...args);
    const isLate = answer instanceof Failure && answer.code === "NetworkTimeout";
    return isLate && hasQueue(client) ? answer.followedBy(QUEUED) : answer;
  };
  return store;
}

const QUEUED =
  "no connection of the client's pool is free. Who asks for a lock inside of a transaction waits for a second one, and " +
  "transactions that all do so wait for each other: take the lock before the transaction, or give the backend a client of its own";
