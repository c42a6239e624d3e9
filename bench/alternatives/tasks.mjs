// What a contender's process is asked to do.

import { once } from "node:events";
import { createServer } from "node:http";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { load, mainThreadCpu } from "../lib/load.mjs";
import { samplePairs } from "../lib/pair.mjs";
import { open } from "./open.mjs";
import { WORK_MICROS } from "./settings.mjs";

/** Milliseconds between two looks at the event loop; an idle loop is this late by its nature. */
const RESOLUTION_MS = 1;

/** The tasks of the contender `id` on the store at `place`, by name. */
export async function tasksOf(id, place) {
  const contender = await open(id, place);
  const held = [];
  let lost = 0;
  let serving;

  return {
    pairs: (sample) => samplePairs(contender, sample),

    /** Pairs of so many keys at once, which nobody else wants. */
    sets: ({ keys, ...sample }) =>
      samplePairs({ pair: (index) => contender.pairOfSet(namesOf(index, keys)) }, sample),

    /** Pairs of one of so many slots, which all want. */
    slots: ({ slots, ...sample }) =>
      samplePairs({ pair: () => contender.withinSlot("slots", slots, () => undefined) }, sample),

    /** Attempts at one lock, which another client holds. */
    async contended({ inFlight, ms, warmMs }) {
      const other = await open(id, place);
      const free = await other.take("contended");
      const attempt = async () => {
        if (await contender.attempt("contended")) throw new Error("two hold one lock");
      };
      try {
        await load(attempt, inFlight, warmMs);
        return await load(attempt, inFlight, ms);
      } finally {
        await free();
        await other.close();
      }
    },

    /** Opens the connection. Several processes do so at a time. */
    warm: () => contender.pair(`of ${process.pid}`),

    /** Waiters that want one lock, or one of so many slots, for `ms`, each time for `holdMs`. Times are the system's, in milliseconds. */
    async waiters({ waiters, holdMs, ms, slots }) {
      const within = (work) =>
        slots === undefined
          ? contender.within("hand-off", work)
          : contender.withinSlot("hand-off", slots, work);
      const [waits, holds] = [[], []];
      const end = now() + ms;
      const waiter = async () => {
        do {
          const asked = now();
          await within(async () => {
            const entered = now();
            waits.push(entered - asked);
            await sleep(holdMs);
            holds.push([entered, now()]);
          });
        } while (now() < end);
      };
      await Promise.all(Array.from({ length: waiters }, waiter));
      return { waits, holds };
    },

    /** Takes locks that extend themselves. */
    async hold({ locks, ttlMs }) {
      lost = 0;
      for (let from = 0; from < locks; from += 500) {
        const some = Array.from({ length: Math.min(500, locks - from) }, (_, index) =>
          contender.hold(`held:${from + index}`, ttlMs, () => (lost += 1)),
        );
        held.push(...(await Promise.all(some)));
      }
    },

    /** What those cost for `ms`. */
    async holding({ ms }) {
      const watch = watchLoop();
      const [start, cpu, mainCpu] = [performance.now(), process.cpuUsage(), mainThreadCpu()];
      await sleep(ms);
      const micros = (performance.now() - start) * 1_000;
      const { user, system } = process.cpuUsage(cpu);
      return {
        cpu: (user + system) / micros,
        mainCpu: (mainThreadCpu() - mainCpu) / micros,
        ...watch.stop(),
        lost,
      };
    },

    /** Releases them. */
    async letGo() {
      await Promise.all(held.splice(0).map((release) => release()));
    },

    /** A server whose handlers take one of `keys` locks and work under it. Resolves to its port. */
    async serve({ keys }) {
      const server = createServer(async (_, response) => {
        try {
          const key = `http:${Math.floor(Math.random() * keys)}`;
          await contender.within(key, () => busyFor(WORK_MICROS));
          response.end("done\n");
        } catch (error) {
          response.writeHead(500).end(String(error));
        }
      });
      server.listen(0, "127.0.0.1");
      await once(server, "listening");
      serving = { server, watch: watchLoop() };
      return server.address().port;
    },

    /** How late the server's event loop was, since `serve` or the last time. */
    served() {
      const seen = serving.watch.stop();
      serving.watch = watchLoop();
      return seen;
    },

    async endServing() {
      serving.watch.stop();
      serving.server.closeAllConnections();
      serving.server.close();
      await once(serving.server, "close");
    },

    close: () => contender.close(),
  };
}

const namesOf = (index, keys) => Array.from({ length: keys }, (_, at) => `set:${index}:${at}`);

/** Milliseconds on a clock that all processes share. */
const now = () => Number(process.hrtime.bigint() / 1_000n) / 1_000;

function busyFor(micros) {
  const end = performance.now() + micros / 1_000;
  while (performance.now() < end);
}

/** How late the event loop is, in milliseconds. */
function watchLoop() {
  const histogram = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  histogram.enable();
  const late = (nanos) => Math.max(0, nanos / 1e6 - RESOLUTION_MS);
  return {
    stop() {
      histogram.disable();
      return { loopP99: late(histogram.percentile(99)), loopMax: late(histogram.max) };
    },
  };
}
