/** A private Redis Cluster, ended with its tests. */

import { freePort } from "./ports";
import { type RedisServer, startRedis } from "./redis";
import { until } from "./until";

const SLOTS = 16_384;
const PRIMARIES = 3;
const FORMED_WITHIN_MS = 60_000;

export type RedisCluster = {
  /** First the primaries, in the order of their slots, then their replicas, in the same order. */
  readonly nodes: readonly RedisServer[];
  /** All nodes. */
  readonly url: string;
  /** The same as `host:port`. */
  readonly addresses: readonly string[];
  /** The node that serves a slot at the start. */
  ownerOf: (slot: number) => RedisServer;
  /** Moves a slot with all its keys. `whileOpen` runs when some of them have moved. */
  moveSlot: (
    slot: number,
    from: RedisServer,
    to: RedisServer,
    whileOpen?: () => Promise<void>,
  ) => Promise<void>;
  stop: () => Promise<void>;
};

export type ClusterSettings = {
  /** Whether each primary has a replica. */
  replicas?: boolean;
  /** More lines of configuration for each node. */
  lines?: readonly string[];
};

/** Starts three primaries, and their replicas. A primary that is silent for 1.5 s is replaced by its replica. */
export async function startRedisCluster(settings: ClusterSettings = {}): Promise<RedisCluster> {
  const { replicas = true, lines = [] } = settings;
  const count = replicas ? 2 * PRIMARIES : PRIMARIES;
  const buses: number[] = [];
  const nodes: RedisServer[] = [];
  const stop = async (): Promise<void> => {
    await Promise.all(nodes.map((node) => node.stop()));
  };
  try {
    for (let index = 0; index < count; index += 1) {
      const bus = await freePort();
      buses.push(bus);
      nodes.push(await startRedis({ lines: [...NODE, `cluster-port ${bus}`, ...lines] }));
    }
    await form(nodes, buses);
  } catch (error) {
    await stop();
    throw error;
  }
  const addresses = nodes.map(({ port }) => `127.0.0.1:${port}`);
  return {
    nodes,
    addresses,
    url: `redis+cluster://${addresses.join(",")}`,
    ownerOf: (slot) => nodes[primaryOf(slot)] as RedisServer,
    moveSlot,
    stop,
  };
}

const NODE = [
  "cluster-enabled yes",
  "cluster-config-file nodes.conf",
  "cluster-node-timeout 1500",
  "cluster-replica-validity-factor 0",
  "cluster-allow-replica-migration no",
  // A replica is not told of until it has received something.
  "repl-ping-replica-period 1",
];

const firstSlot = (primary: number): number => Math.floor((primary * SLOTS) / PRIMARIES);

function primaryOf(slot: number): number {
  return [2, 1, 0].find((primary) => firstSlot(primary) <= slot) as number;
}

const call = async (node: RedisServer, ...words: (string | number)[]): Promise<unknown> =>
  await node.admin.call(...(words.map(String) as [string, ...string[]]));

async function form(nodes: readonly RedisServer[], buses: readonly number[]): Promise<void> {
  for (const [index, node] of nodes.entries()) {
    await call(node, "CLUSTER", "SET-CONFIG-EPOCH", index + 1);
    if (index < PRIMARIES) {
      const last = firstSlot(index + 1) - 1;
      await call(node, "CLUSTER", "ADDSLOTSRANGE", firstSlot(index), last);
    }
  }
  await meet(nodes, buses);
  for (const [index, node] of nodes.entries()) {
    if (index < PRIMARIES) continue;
    const primary = nodes[index - PRIMARIES] as RedisServer;
    await call(node, "CLUSTER", "REPLICATE", String(await call(primary, "CLUSTER", "MYID")));
  }
  const hosts = nodes.length / PRIMARIES;
  await untilAll(nodes, async (node) => {
    const ranges = (await call(node, "CLUSTER", "SLOTS")) as unknown[][];
    const areKnown = ranges.length === PRIMARIES && ranges.every((r) => r.length === 2 + hosts);
    if (!areKnown || !String(await call(node, "CLUSTER", "INFO")).includes("cluster_state:ok")) {
      return false;
    }
    const [role, , , state] = (await call(node, "ROLE")) as string[];
    return role === "master" || state === "connected";
  });
}

/**
 * Makes all nodes known to each other: each pair, as what they hear of each other by and by takes seconds. A handshake that
 * takes longer than a second, as on a busy machine, is given up by Redis, so those that are missing meet again.
 */
async function meet(nodes: readonly RedisServer[], buses: readonly number[]): Promise<void> {
  const AGAIN_MS = 2_000;
  let lastMs = -Infinity;
  await until(async () => {
    const known = await Promise.all(nodes.map((node) => knownPorts(node)));
    if (known.every((ports) => ports.size === nodes.length)) return true;
    if (performance.now() - lastMs < AGAIN_MS) return false;
    lastMs = performance.now();
    await introduce(nodes, buses, known);
    return false;
  }, FORMED_WITHIN_MS);
}

/** Starts the handshake of each two nodes of which one does not know the other. */
async function introduce(
  nodes: readonly RedisServer[],
  buses: readonly number[],
  known: readonly Set<number>[],
): Promise<void> {
  for (const [index, node] of nodes.entries()) {
    for (const [other, bus] of buses.slice(0, index).entries()) {
      const { port } = nodes[other] as RedisServer;
      if (known[index]?.has(port) && known[other]?.has(node.port)) continue;
      await call(node, "CLUSTER", "MEET", "127.0.0.1", port, bus);
    }
  }
}

/** The ports of the nodes, itself among them, with which a node has finished its handshake. */
async function knownPorts(node: RedisServer): Promise<Set<number>> {
  const lines = String(await call(node, "CLUSTER", "NODES"))
    .trim()
    .split("\n");
  // The node's id, then host:port@bus, then its flags.
  const finished = lines
    .map((line) => line.split(" "))
    .filter(([, , flags]) => !flags?.includes("handshake"));
  return new Set(finished.map(([, address]) => Number(address?.match(/:(\d+)@/)?.[1])));
}

async function untilAll(
  nodes: readonly RedisServer[],
  holds: (node: RedisServer) => Promise<boolean>,
): Promise<void> {
  for (const node of nodes) await until(() => holds(node), FORMED_WITHIN_MS);
}

async function moveSlot(
  slot: number,
  from: RedisServer,
  to: RedisServer,
  whileOpen: () => Promise<void> = () => Promise.resolve(),
): Promise<void> {
  const [source, target] = (await Promise.all(
    [from, to].map((node) => call(node, "CLUSTER", "MYID")),
  )) as [string, string];
  await call(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", source);
  await call(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", target);
  for (let round = 0; ; round += 1) {
    const keys = (await call(from, "CLUSTER", "GETKEYSINSLOT", slot, 1_000)) as string[];
    if (keys.length === 0 && round > 0) break;
    // Not all of them at first, so that there are some on either side.
    const some = round === 0 ? keys.slice(0, Math.ceil(keys.length / 2)) : keys;
    for (const key of some) await call(from, "MIGRATE", "127.0.0.1", to.port, key, 0, 5_000);
    if (round === 0) await whileOpen();
  }
  // The new owner first, so that the slot is never nobody's.
  for (const node of [to, from]) await call(node, "CLUSTER", "SETSLOT", slot, "NODE", target);
}
