// Who takes part on Redis: this package, scripts sent by hand, and what npm has.

import { Redis } from "ioredis";
import { Mutex, Semaphore } from "redis-semaphore";
import Redlock from "redlock";
import { createLock, IoredisAdapter, LockAcquisitionError, LockManager } from "redlock-universal";
import { createRedisBackend } from "syncguard/redis";
import { handWrittenLibrary } from "../redis/contenders.mjs";
import { ours } from "./ours.mjs";
import { keptBy, polling, under } from "./polling.mjs";

const TTL_MS = 30_000;
const RETRY_MS = 10;

export const open = {
  syncguard: (port) => ours(createRedisBackend(`redis://127.0.0.1:${port}`, { keyPrefix: "ours" })),

  ioredis(port) {
    const redis = new Redis(port);
    const library = handWrittenLibrary(redis, "theirs");
    return {
      ...polling(library, { retryMs: RETRY_MS }),
      close: async () => redis.disconnect(),
    };
  },

  "redlock-universal"(port) {
    const redis = new Redis(port);
    const adapter = new IoredisAdapter(redis);
    const kept = new Map();
    const manager = new LockManager({
      nodes: [adapter],
      defaultTTL: TTL_MS,
      defaultRetryAttempts: 0,
    });
    const lockOf = (name, retryAttempts, ttl) => {
      const id = `${name}/${retryAttempts}`;
      let lock = kept.get(id);
      if (lock === undefined) {
        const key = `universal:${name}`;
        lock = createLock({ adapter, key, ttl, retryAttempts, retryDelay: RETRY_MS });
        kept.set(id, lock);
      }
      return lock;
    };
    const within = async (lock, work) => {
      const handle = await lock.acquire();
      const free = async () => {
        if (!(await lock.release(handle))) throw new Error("the lock was not released");
      };
      return await under(free, work);
    };
    return {
      pair: (index) => within(lockOf(`key:${index}`, 0, TTL_MS), () => undefined),
      async pairOfSet(keys) {
        const handles = await manager.acquireBatch(keys.map((key) => `universal:${key}`));
        const released = await manager.releaseBatch(handles);
        if (!released.every(Boolean)) throw new Error("the locks were not released");
      },
      attempt: (key) =>
        lockOf(key, 0, TTL_MS)
          .acquire()
          .then(
            () => true,
            refused(
              (error) => error instanceof LockAcquisitionError && /held/.test(String(error.cause)),
            ),
          ),
      async take(key) {
        const lock = lockOf(key, 0, 600_000);
        const handle = await lock.acquire();
        return () => lock.release(handle);
      },
      within: (key, work) => within(lockOf(key, 1_000_000, TTL_MS), work),
      hold: (key, ttlMs, onLost) => {
        const lock = createLock({ adapter, key: `universal:${key}`, ttl: ttlMs });
        return keptBy((routine) => lock.using(routine), onLost);
      },
      close: async () => redis.disconnect(),
    };
  },

  "redis-semaphore"(port) {
    const redis = new Redis(port);
    const mutexOf = (key, options) =>
      new Mutex(redis, `semaphore:${key}`, {
        lockTimeout: TTL_MS,
        retryInterval: RETRY_MS,
        ...options,
      });
    const within = async (mutex, work) => {
      await mutex.acquire();
      return await under(() => mutex.release(), work);
    };
    return {
      pair: (index) => within(mutexOf(`key:${index}`), () => undefined),
      async withinSlot(key, slots, work) {
        const semaphore = new Semaphore(redis, `semaphore:${key}:${slots}`, slots, {
          lockTimeout: TTL_MS,
          acquireTimeout: 60_000,
          retryInterval: RETRY_MS,
        });
        await semaphore.acquire();
        return await under(() => semaphore.release(), work);
      },
      attempt: (key) => mutexOf(key, { acquireAttemptsLimit: 1, retryInterval: 0 }).tryAcquire(),
      async take(key) {
        const mutex = mutexOf(key, { lockTimeout: 600_000 });
        await mutex.acquire();
        return () => mutex.release();
      },
      within: (key, work) => within(mutexOf(key, { acquireTimeout: 60_000 }), work),
      async hold(key, ttlMs, onLost) {
        const mutex = mutexOf(key, { lockTimeout: ttlMs, onLockLost: onLost });
        await mutex.acquire();
        return () => mutex.release();
      },
      close: async () => redis.disconnect(),
    };
  },

  redlock(port) {
    const redis = new Redis(port);
    const redlock = new Redlock([redis], { retryDelay: RETRY_MS, retryJitter: RETRY_MS / 2 });
    const nameOf = (key) => `redlock:${key}`;
    const within = async (key, settings, work) => {
      const lock = await redlock.acquire([nameOf(key)], TTL_MS, settings);
      return await under(() => lock.release(), work);
    };
    return {
      pair: (index) => within(`key:${index}`, { retryCount: 0 }, () => undefined),
      attempt: (key) =>
        redlock.acquire([nameOf(key)], TTL_MS, { retryCount: 0 }).then(
          () => true,
          refused((error) => error.name === "ExecutionError"),
        ),
      async take(key) {
        const lock = await redlock.acquire([nameOf(key)], 600_000, { retryCount: 0 });
        return () => lock.release();
      },
      within: (key, work) => within(key, { retryCount: -1 }, work),
      hold: (key, ttlMs, onLost) =>
        keptBy((routine) => redlock.using([nameOf(key)], ttlMs, routine), onLost),
      close: async () => redis.disconnect(),
    };
  },
};

/** Tells the refusal of a lock that is held from what went wrong. */
function refused(isRefusal) {
  return (error) => {
    if (isRefusal(error)) return false;
    throw error;
  };
}
