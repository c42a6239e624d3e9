// By which rules instances decide who does a job, each in a few lines.

import { Redis } from "ioredis";

const MINUTE_MS = 60_000;

export const RULES = {
  /** Ours: it asks until the period is done, as a schedule does that is tighter than the period. */
  once: (backend, { work, note }) => ({
    untilDone: true,
    close: () => backend.close(),
    async ask(job, period) {
      const run = await backend.once(`job:${job}`, { due: period, ttlMs: 500 }, work(job, period));
      if (run.ran) note("stored", job, period);
      // Perhaps by one that was killed before it could note that.
      else if (run.lastDue === String(period)) note("found", job, period);
      return run.ran || run.reason === "done";
    },
  }),

  /**
   * ShedLock's, by the clocks of its clients: a lock lasts until `lockAtMostFor` after it was taken, and a run that ends before lets it
   * end `lockAtLeastFor` after it was taken. Each instance asks once, when its clock strikes. The values are those of its README.
   */
  shedlock: (_, { now, work }, { at }) => {
    const redis = new Redis(at);
    const [atMostMs, atLeastMs] = [14 * MINUTE_MS, 5 * MINUTE_MS];
    const take =
      "if tonumber(redis.call('GET', KEYS[1]) or 0) > tonumber(ARGV[1]) then return 0 end redis.call('SET', KEYS[1], ARGV[2]) return 1";
    return {
      untilDone: false,
      close: () => redis.quit(),
      async ask(job, period) {
        const [key, takenAtMs] = [`shedlock:${job}`, now()];
        if ((await redis.eval(take, 1, key, takenAtMs, takenAtMs + atMostMs)) === 0) return false;
        await work(job, period)();
        await redis.set(key, Math.max(now(), takenAtMs + atLeastMs));
        return true;
      },
    };
  },

  /** node-cron's own `distributed: true` without a coordinator: the instance with NODE_CRON_RUN=true does everything. */
  "node-cron": (_, { name, work }) => ({
    untilDone: false,
    close: () => undefined,
    async ask(job, period) {
      if (name === "ahead") await work(job, period)();
      return true;
    },
  }),

  /** None: each instance does it. */
  nothing: (_, { work }) => ({
    untilDone: false,
    close: () => undefined,
    ask: async (job, period) => (await work(job, period)(), true),
  }),
};
