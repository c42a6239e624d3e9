/** Opens stores on Redis, and the requests that they make to a client of the user's. */

import { addon } from "../native/addon.js";
import type {
  RedisClientTraits,
  RedisConnection,
  RedisLockOptions,
  RedisSettings,
} from "../native/exports.js";
import { connectAs, type Login } from "../native/login.js";
import { ownCompletions, withClient } from "../native/operations.js";
import { openStore, type Store } from "../native/store.js";
import { FewSentinels, type StoreWarnings } from "../watching/store-warnings.js";

/** A script for a client to run. */
export type RedisScriptCall = {
  script: string;
  keys: string[];
  args: string[];
  /** Whether it is a script of the user's, which may reply anything. */
  isUsers: boolean;
};

/** A connection, and what it warns of. */
export type WarningConnection = {
  readonly connection: RedisConnection;
  readonly warnings: StoreWarnings;
};

/** `login` is called for each connection that is opened, and what it gives takes the place of that in `settings`. */
export function createRedisConnection(
  settings: RedisSettings,
  login?: () => Promise<Login>,
): WarningConnection {
  const warnings = new FewSentinels();
  const told = async ({ naming, known }: { naming: number; known: number }): Promise<void> => {
    warnings.named(naming, known);
    await Promise.resolve();
  };
  const connection = connectAs(settings, login, (all) =>
    withClient(told, (fewSentinelsClient) => {
      return new (addon().RedisConnection)(ownCompletions(), { ...all, fewSentinelsClient });
    }),
  );
  return { connection, warnings };
}

export function openRedis(connection: RedisConnection, locks: RedisLockOptions): Store {
  return openStore(
    (completions) => addon().NativeBackend.redis(completions, connection, locks),
    connection,
  );
}

/** Every script goes through `run`, which uses a client of the user's. */
export function openRedisOverClient(
  run: (call: RedisScriptCall) => Promise<unknown>,
  traits: RedisClientTraits,
  locks: RedisLockOptions,
): Store {
  return withClient(run, (client) =>
    openStore((completions) =>
      addon().NativeBackend.redisOverClient(completions, client, traits, locks),
    ),
  );
}
