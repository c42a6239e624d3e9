// What ten thousand locks cost that extend themselves, in one process, on Redis.

import { setTimeout as sleep } from "node:timers/promises";
import { createRedisBackend } from "syncguard/redis";
import { startServer } from "../redis/server.mjs";
import { printTable } from "../lib/table.mjs";

const TTL_MS = 30_000;

export async function run({ locks = 10_000, seconds: duration = 60 }) {
  const server = await startServer();
  const backend = createRedisBackend(server.address);
  try {
    console.log(`${locks} locks with a TTL of ${TTL_MS} ms on Redis, for ${duration} s\n`);
    const held = [];
    for (let from = 0; from < locks; from += 500) {
      const some = Array.from({ length: Math.min(500, locks - from) }, (_, index) =>
        backend.lock(`held:${from + index}`, { ttlMs: TTL_MS, autoExtend: true }),
      );
      held.push(...(await Promise.all(some)));
    }
    // From one heartbeat of all to another, so that only whole rounds are counted.
    await sleep(TTL_MS / 3);
    const before = await measured(server.admin);
    await sleep(duration * 1_000);
    const after = await measured(server.admin);
    const seconds = (after.at - before.at) / 1_000;
    const extensions = after.calls - before.calls;
    const perSecond = (value) => (value / seconds).toFixed(1);
    const perLock = (value) => (value / extensions).toFixed(1);
    const columns = ["cpu", "mainBusy", "serverCpu", "serverReads"].map((name) => [
      name,
      after[name] - before[name],
    ]);
    printTable([
      ["", "a second", "an extension"],
      ["commands", perSecond(extensions), ""],
      ...columns.map(([name, value]) => [NAMES[name], perSecond(value), perLock(value)]),
    ]);
    const lost = held.filter(({ signal }) => signal.aborted).length;
    console.log(`\nlost: ${lost}`);
    await Promise.all(held.map(({ release }) => release()));
  } finally {
    await backend.close();
    await server.stop();
  }
}

const NAMES = {
  cpu: "CPU of the process, µs",
  mainBusy: "event loop not waiting, µs",
  serverCpu: "CPU of the server, µs",
  serverReads: "reads of the server",
};

/** Totals since the start. */
async function measured(admin) {
  const info = await admin.info("everything");
  const field = (pattern) => Number(pattern.exec(info)?.[1] ?? Number.NaN);
  const { user, system } = process.cpuUsage();
  return {
    at: performance.now(),
    calls: field(/^cmdstat_evalsha:calls=(\d+)/m),
    cpu: user + system,
    mainBusy: performance.eventLoopUtilization().active * 1_000,
    serverCpu: (field(/^used_cpu_sys:([\d.]+)/m) + field(/^used_cpu_user:([\d.]+)/m)) * 1e6,
    serverReads: field(/^total_reads_processed:(\d+)/m),
  };
}
