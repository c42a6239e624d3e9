// The stores that scenes are played on, each on a server of its own.

import { startCluster } from "../../bench/redis-cluster/cluster.mjs";
import { stores } from "../../bench/waiting/stores.mjs";

export const storeNames = [...Object.keys(stores), "redis-cluster"];

/** Starts the store of that name; resolves to its place, by which any process can open a backend on it, and what ends it. */
export async function startStore(name) {
  const { place, server } = await (name === "redis-cluster" ? cluster() : stores[name]());
  return { place, stop: () => server.stop() };
}

async function cluster() {
  const server = await startCluster(3);
  return { place: { kind: "redis", at: server.url }, server };
}
