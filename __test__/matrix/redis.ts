/** The servers and clients of Redis that locks are tried with. */

import { createRequire } from "node:module";
import { Redis } from "ioredis";
import { createClient, createClientPool, createSentinel } from "redis";
import { createClient as createClient4 } from "redis-4";
import { expect } from "vitest";
import type { LockError } from "syncguard";
import { createRedisBackend, type RedisClient } from "syncguard/redis";
// @ts-expect-error a module of the scripts, in plain JavaScript
import { clientFolder } from "../../scripts/lib/matrix.mjs";
// @ts-expect-error a module of the scripts, in plain JavaScript
import { redis62, redis8, valkey9 } from "../../scripts/lib/wheels.mjs";
import { lockError } from "../support/errors";
import { type RedisServer, startRedis } from "../support/redis";
import { newKey } from "../support/suite";
import { until } from "../support/until";
import type { Stage } from "./operations";

const load = createRequire(import.meta.url);
/** A client that is not among the packages of this project. */
const fetched = (name: string): unknown => load((clientFolder as (name: string) => string)(name));

/** The server, and a Sentinel that names it `main`. */
export type RedisStage = { readonly server: RedisServer; readonly sentinel: RedisServer };

export type RedisServerRow = {
  readonly name: string;
  /** As `INFO` has it. Debian's is whichever it is. */
  readonly version: string;
  readonly program?: string;
};

export const redisServers: readonly RedisServerRow[] = [
  { name: "Redis", version: "6.2.14", program: redis62 as string },
  { name: "Redis", version: "7.0" },
  { name: "Redis", version: "8.2.3", program: redis8 as string },
  { name: "Valkey", version: "9.1.2", program: valkey9 as string },
];

export async function startStage({ program }: RedisServerRow): Promise<RedisStage> {
  const server = await startRedis(program === undefined ? {} : { program });
  const sentinel = await startRedis({
    mode: "sentinel",
    lines: [`sentinel monitor main 127.0.0.1 ${server.port} 1`],
  });
  // It says where the server is once it has seen that it is there.
  await until(async () => (await sentinel.admin.info("sentinel")).includes("status=ok"));
  return { server, sentinel };
}

/** Fails if the server is not the one that is meant. */
export async function checkVersion({ server }: RedisStage, row: RedisServerRow): Promise<void> {
  const info = await server.admin.info("server");
  const field = `${row.name.toLowerCase()}_version`;
  const version = new RegExp(`^${field}:(\\S+)`, "m").exec(info)?.[1];
  if (row.program === undefined) expect(version).toMatch(/^\d/);
  else expect(version).toBe(row.version);
}

type Opened = { readonly at: RedisClient | string; readonly end: () => unknown };

export type RedisClientRow = {
  readonly name: string;
  /** Major versions; a URL and options have none. */
  readonly version: string;
  /** Which transports there are for it. */
  readonly ways: readonly ("native" | "client")[];
  readonly open: (stage: RedisStage) => Opened | Promise<Opened>;
};

type Ioredis = typeof Redis;
const BOTH = ["native", "client"] as const;
const address = ({ server }: RedisStage) => ({ host: "127.0.0.1", port: server.port });
const sentinels = ({ sentinel }: RedisStage) => [{ host: "127.0.0.1", port: sentinel.port }];

/** A client of ioredis or of its like; it connects when it is used. */
function ioredis(name: string, version: string, Client: Ioredis): RedisClientRow[] {
  const opened = (client: Redis): Opened => ({ at: client, end: () => client.disconnect() });
  return [
    {
      name,
      version,
      ways: BOTH,
      open: (stage) => opened(new Client({ ...address(stage), lazyConnect: true })),
    },
    {
      name: `${name} with sentinels`,
      version,
      ways: BOTH,
      open: (stage) =>
        opened(new Client({ sentinels: sentinels(stage), name: "main", lazyConnect: true })),
    },
  ];
}

type NodeRedis = {
  createClient: (options: object) => unknown;
  createClientPool?: (options: object) => unknown;
  createSentinel?: (options: object) => unknown;
};

type Connecting = RedisClient & {
  on: (event: "error", listener: () => void) => unknown;
  connect: () => Promise<unknown>;
  /** Version 4 has it under the other name. */
  close?: () => unknown;
  quit: () => unknown;
};

function nodeRedis(version: string, driver: NodeRedis): RedisClientRow[] {
  const opened = async (client: unknown): Promise<Opened> => {
    const connecting = client as Connecting;
    connecting.on("error", () => undefined);
    await connecting.connect();
    return { at: connecting, end: () => (connecting.close ?? connecting.quit).call(connecting) };
  };
  const { createClientPool, createSentinel } = driver;
  const socket = address;
  const rows: RedisClientRow[] = [
    {
      name: "node-redis",
      version,
      ways: BOTH,
      open: (stage) => opened(driver.createClient({ socket: socket(stage) })),
    },
  ];
  if (createClientPool !== undefined) {
    rows.push({
      name: "node-redis: createClientPool()",
      version,
      ways: ["client"],
      open: (stage) => opened(createClientPool({ socket: socket(stage) })),
    });
  }
  if (createSentinel !== undefined) {
    rows.push({
      name: "node-redis: createSentinel()",
      version,
      ways: ["client"],
      open: (stage) =>
        opened(createSentinel({ name: "main", sentinelRootNodes: sentinels(stage) })),
    });
  }
  return rows;
}

export const redisClients: readonly RedisClientRow[] = [
  {
    name: "Redis by a URL",
    version: "–",
    ways: ["native"],
    open: ({ server }) => ({ at: server.url, end: () => undefined }),
  },
  ...ioredis("ioredis", "5", Redis),
  ...ioredis("ioredis", "6", (fetched("ioredis-6") as { Redis: Ioredis }).Redis),
  ...ioredis("iovalkey", "0.4", (fetched("iovalkey") as { Redis: Ioredis }).Redis),
  ...nodeRedis("4", { createClient: createClient4 }),
  ...nodeRedis("5", { createClient, createClientPool, createSentinel } as unknown as NodeRedis),
  ...nodeRedis("6", fetched("redis-6") as NodeRedis),
];

/** The store as it is reached through a client, on one of the transports. */
export async function openRedis(
  stage: RedisStage,
  { open }: RedisClientRow,
  transport: "native" | "client",
): Promise<Stage> {
  const { at, end } = await open(stage);
  const opened: ReturnType<typeof createRedisBackend>[] = [];
  const connect = (): ReturnType<typeof createRedisBackend> => {
    // Which way is taken without being asked for is part of what the page says.
    const options = transport === "client" ? ({ transport } as const) : {};
    const backend = createRedisBackend(at, { ...options, onLost: () => undefined });
    expect(backend.transport?.way).toBe(transport);
    opened.push(backend);
    return backend;
  };
  return {
    connect,
    isTold: transport === "native",
    whileHeld: async () => {
      const [held, counter] = [await connect().lock(newKey()), newKey()];
      const script = "return {redis.call('INCRBY', KEYS[1], ARGV[1]), 'ü'}";
      const call = { keys: [counter], arguments: [2] };
      expect(await held.eval(script, call)).toEqual([2, "ü"]);
      await connect().release({ lockId: held.lockId });
      const error: LockError = await lockError(held.eval(script, call));
      expect(error.code).toBe("LockLost");
      expect(await stage.server.admin.get(counter)).toBe("2");
    },
    close: async () => {
      await Promise.all(opened.map((backend) => backend.close()));
      await end();
    },
  };
}
