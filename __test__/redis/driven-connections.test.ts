/** Clients that are driven, and what they show of their connections. */

import { Redis } from "ioredis";
import { createClient } from "redis";
import { expect, onTestFinished, test } from "vitest";
import { createRedisBackend, type RedisClient } from "syncguard/redis";
import { startRedis } from "../support/redis";
import { newKey } from "../support/suite";
import { until } from "../support/until";

type Client = RedisClient & {
  eventNames: () => (string | symbol)[];
  listenerCount: (event: string | symbol) => number;
};

const CLIENTS: Readonly<Record<string, (url: string) => Promise<Client>>> = {
  ioredis: async (url) => {
    const client = new Redis(url, { retryStrategy: () => 20 });
    onTestFinished(() => client.disconnect());
    client.on("error", () => undefined);
    await client.ping();
    return client;
  },
  "node-redis": async (url) => {
    const client = createClient({ url, socket: { reconnectStrategy: () => 20 } });
    onTestFinished(() => client.destroy());
    client.on("error", () => undefined);
    await client.connect();
    return client;
  },
};

/** How many listeners a client has for each event. */
function listeners(client: Client): Record<string, number> {
  const counts = client.eventNames().map((event) => [event, client.listenerCount(event)] as const);
  return Object.fromEntries(counts);
}

test.each(Object.keys(CLIENTS))(
  "%s connects again, and all that is held is asked after",
  async (name) => {
    const server = await startRedis();
    onTestFinished(server.stop);
    const client = await CLIENTS[name]!(server.url);
    const before = listeners(client);
    const options = { transport: "client", onLost: () => undefined } as const;
    // So many listeners for one event would be warned of.
    const backends = Array.from({ length: 11 }, () => createRedisBackend(client, options));
    expect(Object.values(listeners(client)).every((count) => count < 5)).toBe(true);
    const backend = backends[0]!;
    // The next heartbeat of the second is due after a hundred seconds.
    const signals = [
      (await backend.lock(newKey(), { ttlMs: 300_000 })).signal,
      (await backend.lock(newKey(), { ttlMs: 300_000, autoExtend: true })).signal,
    ];
    await server.kill();
    await server.start();
    // Nobody calls.
    await until(() => signals.every((signal) => signal.aborted));
    for (const signal of signals) expect(signal.reason).toMatchObject({ code: "LockLost" });
    for (const each of backends) await each.close();
    expect(listeners(client)).toEqual(before);
  },
);
