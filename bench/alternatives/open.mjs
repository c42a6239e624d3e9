// The contenders, ready to lock. Each has
//
//   pair(index)          takes and releases a lock of its own
//   attempt(key)         one attempt to take a lock: whether it got it
//   take(key)            takes a lock that is free; resolves to what releases it
//   within(key, work)    waits for a lock, and does the work under it
//   hold(key, ttlMs, onLost)  takes a lock that extends itself; resolves to what releases it
//   close()

const openers = {
  redis: () => import("./redis.mjs"),
  postgres: () => import("./postgres.mjs"),
  firestore: () => import("./firestore.mjs"),
};

/** The contender of that id, on the store at `place`. */
export async function open(id, place) {
  const [store, who] = id.split("/");
  // Clients of other stores would only be in the way.
  return (await openers[store]()).open[who](place);
}
