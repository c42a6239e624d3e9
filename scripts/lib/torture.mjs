// The stores that the program `torture` works on, each on a server of its own.

import { startCluster } from "../../bench/redis-cluster/cluster.mjs";
import { stores } from "../../bench/waiting/stores.mjs";

/** How the program names them, from where they are. */
const URLS = {
  redis: (at) => at,
  "redis-cluster": (at) => at,
  postgres: (at) => at,
  // Some of the processes are another library, which reads and then writes.
  "postgres-mixed": (at) => `mixed+${at}`,
  firestore: (at) => `firestore://${at}`,
  sqlite: (at) => `sqlite:${at}`,
};

export const storeNames = Object.keys(URLS);

/** Starts the store of that name; resolves to its URL and what ends it. */
export async function startStore(name) {
  const { at, server } = name === "redis-cluster" ? await cluster() : await single(name);
  return { url: URLS[name](at), stop: () => server.stop() };
}

async function single(name) {
  const { place, server } = await stores[name.replace("-mixed", "")]();
  return { at: place.at, server };
}

async function cluster() {
  const server = await startCluster(3);
  return { at: server.url, server };
}
