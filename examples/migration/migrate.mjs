// Carries out the migrations that are not done, in one process at a time.

import { setTimeout as sleep } from "node:timers/promises";
import { lock } from "syncguard";

const migrations = [
  { name: "001-accounts", run: (signal) => sleep(300, undefined, { signal }) },
  { name: "002-payments", run: (signal) => sleep(300, undefined, { signal }) },
  { name: "003-index", run: (signal) => sleep(300, undefined, { signal }) },
];

/** Resolves to the names of those that this process has carried out. */
export async function migrate(database, { signal }) {
  return await lock(
    async ({ fence, signal }) => {
      const done = [];
      // Read under the lock: whoever had it before may have done everything.
      const { applied } = await database.read();
      for (const { name, run } of migrations) {
        if (applied.includes(name)) continue;
        // Passed on to what takes long. A migration that goes on without its lock could meet another.
        await run(signal);
        signal.throwIfAborted();
        await database.record(name, fence);
        done.push(name);
      }
      return done;
    },
    {
      key: "migrations",
      // Frees the lock soon after a crash; a migration may take as long as it needs.
      ttlMs: 5_000,
      autoExtend: true,
      signal,
      // Whoever starts second waits until the schema is there.
      acquisition: { timeoutMs: 600_000, maxRetries: Infinity },
    },
  );
}
