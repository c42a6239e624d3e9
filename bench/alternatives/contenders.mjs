// Who takes part, on which store, and what stands beside its numbers.

/** What a table says of a contender; `held` matches the names of its locks in Redis. */
export const contenders = {
  "redis/syncguard": {
    name: "syncguard",
    lacks: "",
    settings:
      "`createRedisBackend(url)` and `backend.lock()`; waiters are told of releases; `autoExtend: true`, a heartbeat at a third of the TTL; several keys with `acquire({ claims })`, slots with `backend.lock({ key, slots })`",
    held: "ours:held:*",
  },
  "redis/ioredis": {
    name: "ioredis by hand",
    lacks: "undo, auto-extend, wake-up, order of waiters",
    settings:
      "this package's own two scripts as commands of one ioredis client, which is what SyncGuard for TypeScript does at its best; waiters try again after 10 ms",
  },
  "redis/redlock-universal": {
    name: "redlock-universal",
    lacks: "fence, look-up by id, undo, wake-up, order of waiters",
    settings:
      "`createLock()` with an `IoredisAdapter`, one object per key that is kept, because a new one sends a `PING` first; waiters try again after 10 ms (`retryDelay`); `using()`, which extends at four fifths of the TTL; several keys with `acquireBatch()` and `releaseBatch()` of a `LockManager`; its authors ask for Node.js 22 or later",
    held: "universal:held:*",
  },
  "redis/redis-semaphore": {
    name: "redis-semaphore",
    lacks: "fence, look-up by id, undo, wake-up, order of waiters",
    settings:
      "a `Mutex` on one ioredis client for each lock; waiters try again after 10 ms, its default; a lone attempt has `retryInterval: 0`, for it would wait that long before it fails; refreshed at four fifths of the TTL, its default; slots are a `Semaphore`, made anew for each use as a `Mutex` is",
    held: "mutex:semaphore:held:*",
  },
  "redis/redlock": {
    name: "node-redlock",
    lacks: "fence, look-up by id, wake-up, order of waiters; undo is one try",
    settings:
      "`new Redlock([ioredis])` for one server; waiters try again after 10 ± 5 ms (`retryDelay`, `retryJitter`; its defaults are 200 ± 200); `using()`, which extends 500 ms before the end, its default",
    held: "redlock:held:*",
  },
  "postgres/syncguard": {
    name: "syncguard",
    lacks: "",
    settings:
      "`createPostgresBackend(url)` with at most 10 connections; acquisitions wait for the disk",
  },
  "postgres/advisory": {
    name: "pg_advisory_lock",
    lacks:
      "fence, look-up by id, a time after which it ends, transaction poolers; each lock needs a connection of its own",
    settings:
      "`pg_try_advisory_lock` and `pg_advisory_lock` of a hash of the key, through a `pg.Pool` of at most 10 connections, its default: a connection is taken from the pool for as long as the lock is held",
  },
  "firestore/syncguard": {
    name: "syncguard",
    lacks: "",
    settings: "`createFirestoreBackend()`; waiters are told of releases",
  },
  "firestore/google": {
    name: "@google-cloud/firestore by hand",
    lacks: "undo, auto-extend, wake-up, order of waiters",
    settings:
      "the transactions of SyncGuard for TypeScript on Google's client; waiters try again after 100 ms, as that library does",
  },
};

/** The store of a contender. */
export const storeOf = (id) => id.split("/")[0];

/** Those that take part on `stores`. */
export const on = (...stores) =>
  Object.keys(contenders).filter((id) => stores.includes(storeOf(id)));
