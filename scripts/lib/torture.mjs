// The stores that the program `torture` works on, each on a server of its own.

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
  // It needs packages, which commands that begin without them install first.
  const { startStore: start } = await import("../../verify/frame/stores.mjs");
  const { place, stop } = await start(name.replace("-mixed", ""));
  return { url: URLS[name](place.at), stop };
}
