/** Jobs that are done once per period, by processes whose clocks differ and of which some are killed. */

import { expect, test } from "vitest";
// @ts-expect-error a module in plain JavaScript
import { PLAN as usual, runFleet as run } from "../../verify/once/fleet.mjs";
import { startPostgres } from "../support/postgres";
import { startRedis } from "../support/redis";

type Counts = {
  kills: number;
  wrong: string[];
  begun: number;
  periods: number;
  twice: number;
  missed: number;
  failures: object;
};
const runFleet = run as (settings: object) => Promise<Counts>;
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
      const found = await runFleet({ place, rule: "once", jobs: 12, periods: 2, plan });
      expect(found).toMatchObject({ wrong: [], periods: 24, twice: 0, missed: 0 });
      expect(found.begun).toBeGreaterThanOrEqual(24);
    } finally {
      await server.stop();
    }
  },
);
