// The stores of scene.mjs: a sum and a list for each key, and locks beside them.

import { Firestore } from "@google-cloud/firestore";
import { Redis } from "ioredis";
import postgres from "postgres";
import { createFirestoreBackend } from "syncguard/firestore";
import { createPostgresBackend, setupSchema } from "syncguard/postgres";
import { createRedisBackend } from "syncguard/redis";

/** Opens the sums and the backend. `add` pauses before it reads, before it writes or after that, as `where` says. */
export async function openStore({ kind, at }) {
  return STORES[kind](at);
}

const STORES = { postgres: openPostgres, firestore: openFirestore, redis: openRedis };

function openPostgres(url) {
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  const backend = createPostgresBackend(url);
  return {
    backend,
    async prepare(keys) {
      await setupSchema(url);
      await sql`DROP TABLE IF EXISTS sums`;
      await sql`CREATE TABLE sums (key text PRIMARY KEY, n int NOT NULL, items text NOT NULL)`;
      for (const key of keys) await sql`INSERT INTO sums VALUES (${key}, 0, '')`;
    },
    async add(held, key, item, { guarded, pause, where }) {
      await sql.begin(async (tx) => {
        if (guarded && where === 0) await held.guard(tx);
        const [{ n, items }] = await tx`SELECT n, items FROM sums WHERE key = ${key}`;
        if (where < 2) await pause();
        if (guarded && where === 1) await held.guard(tx);
        await tx`UPDATE sums SET n = ${n + 1}, items = ${`${items} ${item}`} WHERE key = ${key}`;
        if (where < 2) return;
        await pause();
        if (guarded) await held.guard(tx);
      });
    },
    async read(key) {
      const [{ n, items }] = await sql`SELECT n, items FROM sums WHERE key = ${key}`;
      return { n, items: items.split(" ").filter(Boolean) };
    },
    async close() {
      await backend.close();
      await sql.end();
    },
  };
}

function openFirestore(host) {
  process.env.METADATA_SERVER_DETECTION = "none";
  const db = new Firestore({ projectId: "guards", host, ssl: false });
  const backend = createFirestoreBackend({ projectId: "guards", emulatorHost: host });
  const sums = db.collection("sums");
  return {
    backend,
    async prepare(keys) {
      for (const key of keys) await sums.doc(key).set({ n: 0, items: "" });
    },
    async add(held, key, item, { guarded, pause, where }) {
      // Read outside: what is read in a transaction of Firestore, nobody else overwrites.
      const { n, items } = (await sums.doc(key).get()).data();
      if (where === 0) await pause();
      await db.runTransaction(async (tx) => {
        if (guarded) await held.guard(tx);
        if (where === 1) await pause();
        tx.set(sums.doc(key), { n: n + 1, items: `${items} ${item}` });
        if (where === 2) await pause();
      });
    },
    async read(key) {
      const { n, items } = (await sums.doc(key).get()).data();
      return { n, items: items.split(" ").filter(Boolean) };
    },
    async close() {
      await backend.close();
      await db.terminate();
    },
  };
}

/** Here a script takes the place of a transaction, and the check is made in one step with it. */
function openRedis(url) {
  const redis = new Redis(url);
  const backend = createRedisBackend(url);
  const write = "redis.call('SET', KEYS[1], ARGV[1]) redis.call('SET', KEYS[2], ARGV[2])";
  const names = (key) => [`n:${key}`, `items:${key}`];
  const split = (items) => items.split(" ").filter(Boolean);
  return {
    backend,
    async prepare(keys) {
      for (const key of keys) await redis.mset(names(key).flatMap((name, at) => [name, at === 0 ? 0 : ""]));
    },
    async add(held, key, item, { guarded, pause, where }) {
      if (where === 0) await pause();
      const [n, items] = await redis.mget(names(key));
      if (where === 1) await pause();
      const values = [Number(n) + 1, `${items} ${item}`];
      if (guarded) await held.eval(write, { keys: names(key), arguments: values });
      else await redis.eval(write, 2, ...names(key), ...values);
      if (where === 2) await pause();
    },
    async read(key) {
      const [n, items] = await redis.mget(names(key));
      return { n: Number(n), items: split(items) };
    },
    async close() {
      await backend.close();
      redis.disconnect();
    },
  };
}
