// What a process is asked to do that takes part in a run.

import { setTimeout as sleep } from "node:timers/promises";
import { built } from "../lib/built.mjs";
import { median } from "../lib/table.mjs";
import { open } from "./stores.mjs";

/** For how long each lock is held. */
export const HOLD_MS = 5;

/** The tasks of the build in the folder `from` on the store at `place`. */
export async function tasksOf(place, from) {
  const { lock } = built(from, "syncguard");
  const backend = await open(place, from);
  const kept = [];
  return {
    /** Half of what a lone process takes for a lock besides holding it; a machine that has slept takes longer. */
    async roundTrip() {
      const times = [];
      for (let number = 0; number < 200; number += 1) {
        const start = performance.now();
        const held = await backend.acquire({ key: "alone", ttlMs: 30_000 });
        const granted = performance.now();
        await sleep(HOLD_MS);
        const ended = performance.now();
        await held.release();
        times.push((granted - start + performance.now() - ended) / 2);
      }
      return median(times);
    },

    /** Opens the connection. */
    warm: () => backend.isLocked({ key: "hand-over" }),

    /** Waiters that want one lock for `ms`. Times are the system's, in milliseconds. */
    async handOver({ waiters, ms }) {
      const [waits, holds] = [[], []];
      let errors = 0;
      const end = now() + ms;
      const acquisition = { timeoutMs: 60_000, maxRetries: Infinity };
      const loop = async () => {
        while (now() < end) {
          const asked = now();
          try {
            await lock(
              backend,
              async () => {
                const entered = now();
                waits.push(entered - asked);
                await sleep(HOLD_MS);
                holds.push([entered, now()]);
              },
              { key: "hand-over", acquisition },
            );
          } catch (error) {
            errors += 1;
            console.error(error);
          }
        }
      };
      await Promise.all(Array.from({ length: waiters }, loop));
      return { waits, holds, errors };
    },

    /** A loop for each of `wants`, which takes it and holds it for a while, for `ms`. How long each wait was; one that got nothing, too. */
    async again({ wants, holdMs: [shortest, longest], pauseMs, ms }) {
      const waits = [];
      const end = now() + ms;
      const loop = async (key) => {
        while (now() < end) {
          const asked = now();
          const timeoutMs = Math.max(1, end - asked);
          const held = await backend
            .lock(key, { acquisition: { timeoutMs } })
            .catch(() => undefined);
          if (held !== undefined || now() - asked > 500) waits.push(now() - asked);
          await sleep(shortest + Math.random() * (longest - shortest));
          await held?.release();
          if (pauseMs !== undefined) await sleep(pauseMs);
        }
      };
      await Promise.all(wants.map(loop));
      return waits;
    },

    /**
     * So many loops, each of which takes what it wants and holds it for a while, for `ms`: when each was granted, beside the start.
     * A loop that was refused at the end of its time goes on with something else.
     */
    async work({ loops, wants, holdMs, ms }) {
      const grants = [];
      const start = now();
      const claim = (want) =>
        want.of === undefined ? want : `${want.name}:${Math.floor(Math.random() * want.of)}`;
      const loop = async () => {
        while (now() - start < ms) {
          const left = Math.min(5_000, Math.max(1, ms - (now() - start)));
          const held = await backend
            .lock(wants.map(claim), { acquisition: { timeoutMs: left } })
            .catch(() => undefined);
          if (held !== undefined) grants.push(now() - start);
          if (holdMs > 0) await sleep(holdMs);
          await held?.release();
        }
      };
      await Promise.all(Array.from({ length: loops }, loop));
      return grants.filter((at) => at < ms);
    },

    /** Holds a key until the process is stopped. */
    async hold({ key }) {
      kept.push(await backend.lock(key, { ttlMs: 600_000 }));
    },

    /** Milliseconds until so many locks are held that are asked for at once, of keys of their own or of one that all share. */
    async atOnce({ locks, isShared }) {
      const asked = now();
      const acquiring = Array.from({ length: locks }, (_, number) =>
        isShared
          ? backend.acquire({ key: "at once", mode: "shared", ttlMs: 60_000 })
          : backend.acquire({ key: `at once ${number}`, ttlMs: 60_000 }),
      );
      const held = await Promise.all(acquiring);
      const took = now() - asked;
      if (held.some(({ ok }) => !ok)) throw new Error("locked");
      await Promise.all(held.map((one) => one.release()));
      return took;
    },

    async close() {
      await Promise.all(kept.map((one) => one.release()));
      await backend.close();
    },
  };
}

/** Milliseconds on a clock that all processes share. */
const now = () => Number(process.hrtime.bigint() / 1_000n) / 1_000;
