// Acquire and release on PostgreSQL: this package, the TypeScript library's transactions, and pgbench with our SQL.

import { root } from "../../scripts/lib/paths.mjs";
import { comparePairs, contender } from "../lib/compare.mjs";
import { builds } from "../lib/built.mjs";
import { endMembers } from "../lib/members.mjs";
import { CONNECTIONS, pgbenchScript, setUp } from "./contenders.mjs";
import { pgbench, startServer } from "./server.mjs";

const IN_FLIGHT = [1, 4, 16, 64];
const CONTENDERS = new URL("contenders.mjs", import.meta.url);

const DURABLE = "syncguard, durable releases";
const CANONICAL = "transactions on postgres.js";
const PGBENCH = "pgbench";
const PGBENCH_DURABLE = "pgbench, durable releases";

export async function run({ against, runs, seconds }) {
  const server = await startServer();
  const { port } = server;
  const started = async (who, tables, { from = root, ...options } = {}) => {
    await setUp(port, tables, from);
    return contender(CONTENDERS, who, { port, tables, from, ...options });
  };
  const byPgbench = (isDurable) => {
    const name = isDurable ? "durable.sql" : "relaxed.sql";
    const file = server.file(name, pgbenchScript("pgbench", isDurable));
    return {
      async sample(inFlight, ms) {
        return { rate: await pgbench(port, file, Math.min(inFlight, CONNECTIONS), ms) };
      },
    };
  };
  try {
    await setUp(port, "pgbench", root);
    const contenders = {};
    for (const [name, from] of builds(against)) {
      contenders[name] = await started("syncguard", name, { from });
    }
    contenders[DURABLE] = await started("syncguard", "durable", { durableReleases: true });
    contenders[CANONICAL] = await started("canonical", "canonical");
    contenders[PGBENCH] = byPgbench(false);
    contenders[PGBENCH_DURABLE] = byPgbench(true);
    console.log(`PostgreSQL, fsync on; at most ${CONNECTIONS} connections each`);
    const ratios = [
      ...builds(against).slice(1).map(([before]) => ["syncguard", before]),
      ...[["syncguard", CANONICAL], ["syncguard", PGBENCH]],
      ...[[DURABLE, CANONICAL], [DURABLE, PGBENCH_DURABLE]],
    ]; // prettier-ignore
    await comparePairs(contenders, IN_FLIGHT, { runs, seconds, ratios });
  } finally {
    endMembers();
    await server.stop();
  }
}
