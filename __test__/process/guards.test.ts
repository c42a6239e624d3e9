/** Processes that are stopped in the middle of their transactions: what guards keep, and what is lost without. */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
// @ts-expect-error a module in plain JavaScript
import * as check from "../../verify/guards/run.mjs";
import { startEmulator } from "../support/firestore";
import { startPostgres } from "../support/postgres";
import { startRedis } from "../support/redis";

type Found = Record<"committed" | "refused" | "stopped" | "lost" | "twice" | "miscounted", number>;
type Where = { at: string; stop: () => Promise<void> };

const STORES: Record<string, () => Promise<Where>> = {
  postgres: async () => {
    const server = await startPostgres();
    return { at: server.url.split("?")[0] as string, stop: server.stop };
  },
  firestore: async () => {
    const emulator = await startEmulator();
    return { at: emulator.host, stop: emulator.stop };
  },
  redis: async () => {
    const server = await startRedis();
    return { at: server.url, stop: server.stop };
  },
};

const { addUnderLocks } = check as {
  addUnderLocks: (store: { name: string; at: string }, how: object) => Promise<Found>;
};

describe.each(Object.keys(STORES))("on %s", (name) => {
  let where: Where;
  beforeAll(async () => {
    where = await (STORES[name] as () => Promise<Where>)();
  });
  afterAll(() => where.stop());

  const run = (guarded: boolean): Promise<Found> => {
    const how = { transactions: 120, processes: 3, sums: 2, stops: 4, guarded };
    return addUnderLocks({ name, at: where.at }, how);
  };

  test("nothing is lost with guards", { timeout: 120_000 }, async () => {
    const found = await run(true);
    expect(found).toMatchObject({ stopped: 12, lost: 0, twice: 0, miscounted: 0 });
    expect(found.refused).toBeGreaterThan(0);
    expect(found.committed).toBeGreaterThan(60);
  });

  test("without guards the same run loses some", { timeout: 120_000 }, async () => {
    const found = await run(false);
    expect(found).toMatchObject({ committed: 120, refused: 0, stopped: 12 });
    expect(found.lost).toBeGreaterThan(0);
  });
});
