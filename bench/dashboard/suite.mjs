// What the dashboard costs: a store that has many locks, and the process in which many pages are open.

import { fork } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { createDashboard } from "syncguard/dashboard";
import { createPostgresBackend, setupSchema } from "syncguard/postgres";
import { createRedisBackend } from "syncguard/redis";
import { startServer as startPostgres, USER } from "../postgres/server.mjs";
import { startServer as startRedis } from "../redis/server.mjs";
import { printTable } from "../lib/table.mjs";

const LOOKS = 20;
const TTL_MS = 3_600_000;

export async function run({ locks = 100_000, seconds = 60 }) {
  const rows = [["", "ms", "calls", "rows", "CPU of the server, ms"]];
  for (const [name, open] of Object.entries(STORES)) {
    const store = await open();
    try {
      await hold(store.backend, locks);
      rows.push([`${name}, a look`, ...(await costOf(store, LOOKS, {}))]);
      rows.push([`${name}, a search`, ...(await costOf(store, 3, SEARCH))]);
    } finally {
      await store.stop();
    }
  }
  console.log(`${locks} locks\n`);
  printTable(rows);
  await serve(seconds);
}

/** No lock has it. */
const SEARCH = { "syncguard-search": "nobody" };

const STORES = {
  Redis: async () => {
    const server = await startRedis();
    const backend = createRedisBackend(server.address);
    const measured = async () => {
      const info = await server.admin.info("all");
      const field = (pattern) => Number(pattern.exec(info)?.[1] ?? 0);
      const cpu = field(/^used_cpu_sys:([\d.]+)/m) + field(/^used_cpu_user:([\d.]+)/m);
      const calls = field(/^cmdstat_evalsha:calls=(\d+)/m) + field(/^cmdstat_eval:calls=(\d+)/m);
      return { calls, cpuMs: cpu * 1_000 };
    };
    const stop = () => backend.close().then(() => server.stop());
    return { address: server.address, backend, measured, stop };
  },
  PostgreSQL: async () => {
    const server = await startPostgres();
    const url = `postgres://${USER}@127.0.0.1:${server.port}/postgres`;
    await setupSchema(url);
    const backend = createPostgresBackend(url);
    const admin = new pg.Client(url);
    await admin.connect();
    const measured = async () => {
      // Sessions tell of all that they have done when they have had nothing to do for ten seconds.
      await sleep(11_000);
      const { rows } = await admin.query(READ);
      return rows[0];
    };
    const stop = async () => {
      await Promise.all([backend.close(), admin.end()]);
      await server.stop();
    };
    return { backend, measured, stop };
  },
};

const READ =
  "SELECT (SELECT xact_commit::int FROM pg_stat_database WHERE datname = 'postgres') AS calls, " +
  "(SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::int FROM pg_stat_user_tables) AS rows";

async function hold(backend, locks) {
  for (let from = 0; from < locks; from += 500) {
    const some = Array.from({ length: Math.min(500, locks - from) }, (_, index) =>
      backend.acquire({ key: `held:${from + index}`, ttlMs: TTL_MS }),
    );
    await Promise.all(some);
  }
}

/** How long a look takes, and what the server does for it. */
async function costOf({ backend, measured }, looks, headers) {
  const dashboard = createDashboard(backend, { authorize: () => "bench" });
  const look = async () => {
    const request = new Request("http://bench.invalid/?locks", { headers });
    await (await dashboard(request)).arrayBuffer();
  };
  await look();
  const before = await measured();
  let tookMs = 0;
  for (let count = 0; count < looks; count += 1) {
    const startedMs = performance.now();
    await look();
    tookMs += performance.now() - startedMs;
  }
  const after = await measured();
  const each = (name) => (name in after ? ((after[name] - before[name]) / looks).toFixed(1) : "");
  return [(tookMs / looks).toFixed(1), each("calls"), each("rows"), each("cpuMs")];
}

/** What pages cost the process that serves them; they are open, and locks come and go, in another one. */
async function serve(seconds) {
  const { address, backend, stop } = await STORES.Redis();
  const dashboard = createDashboard(backend);
  const server = createServer(dashboard.node).listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${server.address().port}/?events`;
  const pages = fork(new URL("pages.mjs", import.meta.url), [JSON.stringify({ url, address })]);
  try {
    const [about] = await once(pages, "message");
    const before = process.cpuUsage();
    await sleep(seconds * 1_000);
    const { user, system } = process.cpuUsage(before);
    pages.send("end");
    const [{ shownMs }] = await once(pages, "message");
    console.log(`\n${about}, for ${seconds} s:`);
    console.log(`the process took ${((user + system) / 1e4 / seconds).toFixed(1)} % of a core`);
    const [median, longest] = [shownMs[shownMs.length >> 1], shownMs.at(-1)];
    console.log(`a lock was told of ${median} ms after its grant (median; at most ${longest} ms)`);
  } finally {
    pages.kill();
    dashboard.close();
    server.close();
    await stop();
  }
}
