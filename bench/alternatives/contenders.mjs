// Who takes part, on which store, and what stands beside its numbers.

/** What a table says of a contender; `held` matches the names of its locks in Redis. */
export const contenders = {
  "redis/syncguard": {
    name: "syncguard",
    lacks: "",
    settings:
      "`createRedisBackend(url)` and `backend.lock()`; `autoExtend: true`, a heartbeat at a third of the TTL; several keys with `acquire({ claims })`, slots with `backend.lock({ key, slots })`",
    held: "ours:held:*",
  },
  "redis/ioredis": {
    name: "ioredis by hand",
    lacks: "undo, auto-extend, wake-up, order of waiters",
    settings: "this package's two scripts as commands of one ioredis client; polls every 10 ms",
  },
  "redis/redlock-universal": {
    name: "redlock-universal",
    lacks: "fence, look-up by id, undo, wake-up, order of waiters",
    settings:
      "`createLock()` with an `IoredisAdapter`, one object per key; polls every 10 ms (`retryDelay`); `using()`, which extends at four fifths of the TTL; several keys with `acquireBatch()` and `releaseBatch()` of a `LockManager`",
    held: "universal:held:*",
  },
  "redis/redis-semaphore": {
    name: "redis-semaphore",
    lacks: "fence, look-up by id, undo, wake-up, order of waiters",
    settings:
      "a `Mutex` for each lock; polls every 10 ms; refreshed at four fifths of the TTL; slots are a `Semaphore`, made anew for each use as a `Mutex` is",
    held: "mutex:semaphore:held:*",
  },
  "redis/redlock": {
    name: "node-redlock",
    lacks: "fence, look-up by id, wake-up, order of waiters; undo is one try",
    settings:
      "version 5, for one server; polls every 10 ± 5 ms (`retryDelay`, `retryJitter`; the defaults are 200 ± 200); `using()`, which extends 500 ms before the end",
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
    lacks: "fence, look-up by id, TTL, transaction poolers; each lock needs its own connection",
    settings:
      "`pg_try_advisory_lock` and `pg_advisory_lock` through a `pg.Pool` of at most 10 connections",
  },
  "firestore/syncguard": {
    name: "syncguard",
    lacks: "",
    settings: "`createFirestoreBackend()`",
  },
  "firestore/google": {
    name: "@google-cloud/firestore by hand",
    lacks: "undo, auto-extend, wake-up, order of waiters",
    settings: "the transactions of SyncGuard 2 on Google's client; polls every 100 ms",
  },
};

/** The store of a contender. */
export const storeOf = (id) => id.split("/")[0];

/** Those that take part on `stores`. */
export const on = (...stores) =>
  Object.keys(contenders).filter((id) => stores.includes(storeOf(id)));
