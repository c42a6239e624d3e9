/** Processes that are stopped in the middle of their transactions: what guards keep, and what is lost without. */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
// @ts-expect-error a module in plain JavaScript
import { perform as play } from "../../verify/frame/play.mjs";
// @ts-expect-error a module in plain JavaScript
import { additions as scene } from "../../verify/guards/scene.mjs";
import { startEmulator } from "../support/firestore";
import { startPostgres } from "../support/postgres";
import { startRedis } from "../support/redis";

type Figures = Record<
  "committed" | "refused" | "stopped" | "lost" | "twice" | "miscounted",
  number
>;
type Found = { figures: Figures; violations: string[] };
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

const perform = play as (scene: object, place: object, settings: object) => Promise<Found>;
const additions = scene as object;

describe.each(Object.keys(STORES))("on %s", (name) => {
  let where: Where;
  beforeAll(async () => {
    where = await (STORES[name] as () => Promise<Where>)();
  });
  afterAll(() => where.stop());

  const run = (guarded: boolean): Promise<Found> => {
    const how = { transactions: 120, processes: 3, sums: 2, stops: 4, guarded };
    return perform(additions, { kind: name, at: where.at }, how);
  };

  test("nothing is lost with guards", { timeout: 120_000 }, async () => {
    const { figures, violations } = await run(true);
    expect(violations).toEqual([]);
    expect(figures).toMatchObject({ stopped: 12, lost: 0, twice: 0, miscounted: 0 });
    expect(figures.refused).toBeGreaterThan(0);
    expect(figures.committed).toBeGreaterThan(60);
  });

  // That the scene can lose something is asked on the other stores by `npm run test:all`.
  if (process.env.SYNCGUARD_TESTS !== "all" && name !== "redis") return;

  test("without guards the same run loses some", { timeout: 120_000 }, async () => {
    const { figures, violations } = await run(false);
    expect(violations).toEqual([]);
    expect(figures).toMatchObject({ committed: 120, refused: 0, stopped: 12 });
    expect(figures.lost).toBeGreaterThan(0);
  });
});
