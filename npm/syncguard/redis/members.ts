import type { LockError } from "../native/errors.js";

/** What locks in Redis can do besides. */
export interface RedisGuard {
  /**
   * Runs your Lua only if the lock is held, by the server's clock: in one atomic step with the check, and one round trip. Of
   * several locks, all must be held. A holder that was stopped for longer than its TTL changes nothing.
   *
   * The script is sent as it is, and sees its own `KEYS` and `ARGV`, from 1 on. Its text is code: what comes from elsewhere
   * belongs into `keys` and `arguments`. After the first time only its hash is sent.
   *
   * @param script - Lua, as for `EVAL`
   * @returns what the script returns: see {@link RedisReply}
   * @throws LockError `LockLost` if the lock is not held any more: nothing of the script has run, and `signal` is aborted;
   *   `InvalidArgument` that names the argument, for a script that the server cannot compile, and in a Redis Cluster for keys in
   *   another hash slot than the lock; `Internal` with the server's own words for what the script fails with, after which what
   *   it has written before stays; `Aborted` if the signal came first; or the store's error. A script is sent once at most:
   *   where its answer is lost, the message ends with "the script may have run"
   * @example
   * ```ts
   * import { createRedisBackend } from "syncguard/redis";
   *
   * const backend = createRedisBackend("redis://localhost:6379");
   * await using held = await backend.lock("account:1");
   * const balance = await held.eval("return redis.call('INCRBY', KEYS[1], ARGV[1])", {
   *   keys: ["balance:1"],
   *   arguments: [25],
   * });
   * console.log("the balance is", balance);
   * ```
   */
  readonly eval: (script: string, options?: RedisEvalOptions) => Promise<RedisReply>;
}

/** What a script is given. */
export interface RedisEvalOptions {
  /**
   * The names of your data that the script touches, as they are in the server; the script's `KEYS`. Where the backend was given a
   * client of ioredis with a `keyPrefix`, or `clientKeyPrefix`, that is put before each, as ioredis does it. The backend's own
   * `keyPrefix` is not.
   */
  readonly keys?: readonly string[] | undefined;
  /** What else the script is given, as texts; the script's `ARGV`. */
  readonly arguments?: readonly (string | number)[] | undefined;
  /** Cancels the call, which is then rejected with `Aborted`; the script may have run. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * What a script returns, as ioredis and node-redis give it: a number of Lua as a whole number, a text or a status as a text, `nil`
 * and `false` as `null`, `true` as `1`, a table as an array to its first `nil`, an error within a table as an error.
 */
export type RedisReply = string | number | null | LockError | RedisReply[];
