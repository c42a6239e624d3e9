/** Jobs that are done once per period, by processes whose clocks differ and of which some are killed. */

import { expect, test } from "vitest";
// @ts-expect-error a module in plain JavaScript
import { perform as play } from "../../verify/frame/play.mjs";
// @ts-expect-error a module in plain JavaScript
import { PLAN as usual, periods as scene } from "../../verify/once/scene.mjs";
import { startPostgres } from "../support/postgres";
import { startRedis } from "../support/redis";

type Found = {
  figures: { begun: number; periods: number; twice: number; missed: number };
  violations: string[];
};
const perform = play as (scene: object, place: object, settings: object) => Promise<Found>;
const periods = scene as object;
const PLAN = usual as object;

test.concurrent.each([
  ["redis", startRedis],
  ["postgres", startPostgres],
] as const)(
  "on %s each period of each job is done once, whoever is killed",
  { timeout: 180_000 },
  async (kind, startServer) => {
    const server = await startServer();
    try {
      const place = { kind, at: server.url };
      const plan = { ...PLAN, killShare: 0.15 };
      const settings = { rule: "once", jobs: 12, periods: 2, plan };
      const { figures, violations } = await perform(periods, place, settings);
      expect(violations).toEqual([]);
      expect(figures).toMatchObject({ periods: 24, twice: 0, missed: 0 });
      expect(figures.begun).toBeGreaterThanOrEqual(24);
    } finally {
      await server.stop();
    }
  },
);
