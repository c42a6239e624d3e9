// Acquire and release on a Redis Cluster: this package, the same scripts by hand on ioredis, and this package on one server.

import { root } from "../../scripts/lib/paths.mjs";
import { comparePairs, contender } from "../lib/compare.mjs";
import { builds } from "../lib/built.mjs";
import { endMembers } from "../lib/members.mjs";
import { startServer } from "../redis/server.mjs";
import { IN_FLIGHT } from "../redis/suite.mjs";
import { startCluster } from "./cluster.mjs";

const CONTENDERS = new URL("contenders.mjs", import.meta.url);
const PRIMARIES = 3;

export async function run({ against, runs, seconds }) {
  const [server, cluster] = await Promise.all([startServer(), startCluster(PRIMARIES)]);
  const ours = (from, { address }) => contender(CONTENDERS, "syncguard", { from, address });
  try {
    console.log(`Redis Cluster of ${PRIMARIES} primaries`);
    const contenders = {};
    for (const [name, from] of builds(against)) contenders[name] = ours(from, cluster);
    contenders["ioredis by hand"] = contender(CONTENDERS, "ioredis", { address: cluster.address });
    contenders["syncguard on one server"] = ours(root, server);
    await comparePairs(contenders, IN_FLIGHT, { runs, seconds });
  } finally {
    endMembers();
    await Promise.all([server.stop(), cluster.stop()]);
  }
}
