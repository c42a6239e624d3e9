// How soon holders on Redis hear that the server behind the address came back empty: from the first call on, which connects.

import { createRedisBackend } from "syncguard/redis";
import { startServer } from "../redis/server.mjs";
import { printTable, spread } from "../lib/table.mjs";

/** No heartbeat is due while this runs. */
const TTL_MS = 300_000;

export async function run({ runs = 5, locks = 3_000 }) {
  const rows = [["", "the first is told after, ms", "the last is told after, ms"]];
  for (const count of [1, locks]) {
    for (const autoExtend of [true, false]) {
      const samples = [];
      for (let run = 0; run < runs; run += 1) samples.push(await sample(count, autoExtend));
      const name = `${count} ${count === 1 ? "lock" : "locks"}${autoExtend ? " with autoExtend" : ""}`;
      const column = (pick) => spread(samples.map((told) => pick(...told)));
      rows.push([name, column(Math.min), column(Math.max)]);
    }
  }
  console.log(`TTL ${TTL_MS} ms, ${runs} runs of each\n`);
  printTable(rows);
}

/** For each lock, the milliseconds from the call that was the first to reach the new server until its holder was told. */
async function sample(count, autoExtend) {
  const server = await startServer();
  const backend = createRedisBackend(server.address);
  let stop = server.stop;
  try {
    const told = [];
    const holding = Array.from({ length: count }, async (_, index) => {
      const onLost = () => told.push(performance.now());
      return await backend.lock(`held:${index}`, { ttlMs: TTL_MS, autoExtend, onLost });
    });
    const held = await Promise.all(holding);
    await server.stop();
    ({ stop } = await startServer({ port: server.port }));
    const first = await firstCall(backend);
    while (told.length < held.length) await new Promise((resolve) => setImmediate(resolve));
    return told.map((at) => at - first);
  } finally {
    await backend.close();
    await stop();
  }
}

/** When the first call began that was answered. */
async function firstCall(backend) {
  for (;;) {
    const begun = performance.now();
    const isAnswered = await backend.isLocked({ key: "other" }).then(
      () => true,
      () => false,
    );
    if (isAnswered) return begun;
  }
}
