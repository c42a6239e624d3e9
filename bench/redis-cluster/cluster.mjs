// A private Redis Cluster of primaries alone.

import { setTimeout as sleep } from "node:timers/promises";
import { freePort } from "../lib/ports.mjs";
import { startServer } from "../redis/server.mjs";

const SLOTS = 16_384;

/** Starts so many primaries, each with the same share of the slots. */
export async function startCluster(count) {
  const nodes = [];
  const stop = async () => {
    await Promise.all(nodes.map((node) => node.stop()));
  };
  try {
    for (let index = 0; index < count; index += 1) {
      const bus = await freePort();
      const settings = { "cluster-enabled": "yes", "cluster-port": bus };
      const node = { ...(await startServer(settings)), bus };
      nodes.push(node);
      const [first, next] = [index, index + 1].map((share) => Math.floor((share * SLOTS) / count));
      await node.admin.call("CLUSTER", "ADDSLOTSRANGE", first, next - 1);
      await node.admin.call("CLUSTER", "SET-CONFIG-EPOCH", index + 1);
      for (const other of nodes.slice(0, index)) {
        await node.admin.call("CLUSTER", "MEET", "127.0.0.1", other.port, other.bus);
      }
    }
    for (const { admin } of nodes) await ready(admin, count);
  } catch (error) {
    await stop();
    throw error;
  }
  const addresses = nodes.map(({ port }) => `127.0.0.1:${port}`);
  return {
    url: `redis+cluster://${addresses.join(",")}`,
    address: { nodes: nodes.map(({ address }) => address) },
    stop,
  };
}

async function ready(admin, count) {
  for (const end = Date.now() + 30_000; Date.now() < end; await sleep(20)) {
    const info = await admin.call("CLUSTER", "INFO");
    if (info.includes("cluster_state:ok") && info.includes(`cluster_size:${count}`)) return;
  }
  throw new Error("the cluster did not get ready");
}
