/**
 * Sets of keys that overlap, taken by several processes in opposite orders, for as long as SYNCGUARD_SETS_SECONDS says. With
 * SYNCGUARD_RECORD, docs/reliability/runs.md says what came of it.
 */

import { join } from "node:path";
import { setupSchema } from "syncguard/postgres";
import { describe, expect, onTestFinished, test } from "vitest";
import { start } from "../support/child";
import { json } from "../support/cli";
import { startEmulator } from "../support/firestore";
import { startPostgres } from "../support/postgres";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as records from "../../scripts/lib/records.mjs";
import { startRedis } from "../support/redis";
import { temporaryFolder } from "../support/temp";

const { record } = records as {
  record: (page: string, heading: string, rows: object[]) => Promise<void>;
};

const SECONDS = process.env.SYNCGUARD_SETS_SECONDS ?? "2";
const PROCESSES = 8;
const KEYS = ["a", "b", "c"];

type Stored = { key: string; owner: string; expiresAtMs: number };
/** What is stored, all at one moment. */
type Look = () => Promise<Stored[]>;
type Scene = { url: string; env?: Record<string, string>; look: Look };

/**
 * Which key has which owner. Sets are granted for 20 s and held for a moment. What whoever gathers has so far lasts for three seconds at most:
 * nobody works under it.
 */
const granted = (locks: Stored[]): Map<string, string> => {
  const isGranted = ({ expiresAtMs }: Stored) => expiresAtMs - Date.now() > 10_000;
  return new Map(locks.filter(isGranted).map(({ key, owner }) => [key, owner]));
};

/** With `list`, which is one query but on Redis. */
const listed =
  (url: string): Look =>
  async () =>
    ((await json(0, url, "list")) as { locks: Stored[] }).locks;

const scenes: Record<string, () => Promise<Scene>> = {
  async Redis() {
    const server = await startRedis();
    onTestFinished(() => server.stop());
    const look: Look = async () => {
      const stored = await server.admin.mget(KEYS.map((key) => `syncguard:${key}`));
      return stored.filter((one) => one !== null).map((one) => JSON.parse(one) as Stored);
    };
    return { url: server.url, look };
  },
  async PostgreSQL() {
    const { url, stop } = await startPostgres();
    onTestFinished(stop);
    await setupSchema(url);
    return { url, look: listed(url) };
  },
  SQLite() {
    const folder = temporaryFolder();
    onTestFinished(folder.remove);
    const url = `sqlite:${join(folder.path, "locks.db")}`;
    return Promise.resolve({ url, look: listed(url) });
  },
  async Firestore() {
    const { host, stop } = await startEmulator();
    onTestFinished(stop);
    const env = { FIRESTORE_EMULATOR_HOST: host };
    Object.assign(process.env, env);
    return { url: "firestore://sets", env, look: listed("firestore://sets") };
  },
};

describe.each(Object.entries(scenes))("on %s", (store, open) => {
  test(
    "nobody waits for ever, and nobody has a part of a set",
    async () => {
      const { url, env, look } = await open();
      const folder = temporaryFolder();
      onTestFinished(folder.remove);
      const processes = Array.from({ length: PROCESSES }, (_, id) =>
        start("node", "sets.mjs", [url, folder.path, String(id), SECONDS, ...KEYS], env),
      );
      let areDone = false;
      const ended = Promise.all(processes.map(({ finished }) => finished));
      void ended.then(() => (areDone = true));
      let [looks, sets] = [0, 0];
      while (!areDone) {
        const owners = granted(await look());
        looks += 1;
        for (const owner of new Set(owners.values())) {
          const set = owner.split("+").slice(1);
          if (set.length > 1) sets += 1;
          // All of its keys are its own.
          expect(set.map((key) => owners.get(key))).toEqual(set.map(() => owner));
        }
      }
      const reports = (await ended).map(({ code, stdout, stderr }) => {
        expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
        return JSON.parse(stdout) as { turns: number; longestMs: number };
      });
      const turns = reports.map((report) => report.turns);
      expect(Math.min(...turns)).toBeGreaterThan(0);
      expect(looks).toBeGreaterThan(1);
      if (process.env.SYNCGUARD_RECORD !== undefined) {
        const row = {
          store,
          seconds: Number(SECONDS),
          turns: turns.reduce((sum, one) => sum + one),
          "fewest of a process": Math.min(...turns),
          "longest wait, ms": Math.max(...reports.map((report) => report.longestMs)),
          looks,
          "sets seen": sets,
        };
        await record("runs", "Sets that overlap", [row]);
      }
      expect(await look()).toEqual([]);
    },
    Number(SECONDS) * 1_000 + 120_000,
  );
});
