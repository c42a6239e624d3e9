// npm run guards [-- STORES TRANSACTIONS PROCESSES]: processes that are stopped in the middle of their transactions, with
// guards and without (verify/guards/run.mjs). With guards, nothing may be lost; without, the same run shows what is.

import { startServer as startFirestore } from "../bench/firestore/server.mjs";
import { startServer as startPostgres, USER } from "../bench/postgres/server.mjs";
import { startServer as startRedis } from "../bench/redis/server.mjs";
import { addUnderLocks } from "../verify/guards/run.mjs";
import { build } from "./lib/build.mjs";
import { exitOnSignals, main } from "./lib/run.mjs";
import { needServers } from "./lib/servers.mjs";

const STORES = {
  postgres: async () => {
    const server = await startPostgres();
    return { at: `postgres://${USER}@127.0.0.1:${server.port}/postgres`, stop: server.stop };
  },
  firestore: async () => {
    const server = await startFirestore();
    return { at: server.host, stop: server.stop };
  },
  redis: async () => {
    const server = await startRedis();
    return { at: `redis://127.0.0.1:${server.port}`, stop: server.stop };
  },
};

await main(async () => {
  const [names = Object.keys(STORES).join(), transactions = "10000", processes = "8"] =
    process.argv.slice(2);
  await needServers();
  await build();
  exitOnSignals();
  let isRight = true;
  for (const name of names.split(",")) {
    const start = STORES[name];
    if (start === undefined)
      throw new Error(`no such store: ${name} (${Object.keys(STORES).join()})`);
    const { at, stop } = await start();
    try {
      for (const guarded of [true, false]) {
        const how = { transactions: Number(transactions), processes: Number(processes), sums: 4 };
        const started = Date.now();
        const found = await addUnderLocks({ name, at }, { ...how, stops: 12, guarded });
        const seconds = Math.round((Date.now() - started) / 1_000);
        console.log(`${name}, ${guarded ? "guarded" : "not guarded"}, ${seconds} s:`, found);
        const { lost, twice, miscounted, stopped } = found;
        isRight &&= stopped > 0 && (guarded ? lost + twice + miscounted === 0 : lost > 0);
      }
    } finally {
      await stop();
    }
  }
  console.log(isRight ? "All right: nothing was lost with guards." : "WRONG");
  return isRight ? 0 : 1;
});
