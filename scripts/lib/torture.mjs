// How the program `torture` names the stores that `bench/waiting/stores.mjs` starts.

const URLS = {
  redis: (at) => at,
  "redis-cluster": (at) => at,
  postgres: (at) => at,
  // Some of the processes are another library, which reads and then writes.
  "postgres-mixed": (at) => `mixed+${at}`,
  firestore: (at) => `firestore://${at}`,
  sqlite: (at) => `sqlite:${at}`,
};

/** The URL of the store of that kind at that place. */
export function tortureUrl(store, at) {
  return URLS[store](at);
}
