/** Leaders in processes of their own: some are killed, stopped and told to end. */

import { join } from "node:path";
import { expect, test } from "vitest";
// @ts-expect-error a module in plain JavaScript
import { perform as play } from "../../verify/frame/play.mjs";
// @ts-expect-error a module in plain JavaScript
import { check as judge } from "../../verify/leader/check.mjs";
// @ts-expect-error a module in plain JavaScript
import { leaders as scene } from "../../verify/leader/scene.mjs";
import { start } from "../support/child";
import { startPostgres } from "../support/postgres";
import { startRedis } from "../support/redis";
import { temporaryFolder } from "../support/temp";

type Entry = { atMs: number; event: string; member: string; term?: number; contAtMs?: number };
type Found = {
  violations: string[];
  terms: number;
  handovers: Record<string, number[]>;
  lateSteps: object[];
  toldMs: number[];
};
const check = judge as (history: Entry[], wakingMs?: number) => Found;
const perform = play as (scene: object, place: object, settings: object) => Promise<Found>;
const leaders = scene as object;

/** For a machine with much else to do. */
const WAKING_MS = 5_000;

test.concurrent.each([
  ["redis", startRedis],
  ["postgres", startPostgres],
] as const)(
  "on %s one leads at a time, whoever is killed, stopped or told to end",
  { timeout: 180_000 },
  async (kind, startServer) => {
    const server = await startServer();
    try {
      const place = { kind, at: server.url };
      const settings = { members: 3, seconds: 8, seed: 7, ttlMs: 1_500, wakingMs: WAKING_MS };
      const { violations, terms, handovers } = await perform(leaders, place, settings);
      expect(violations).toEqual([]);
      expect(terms).toBeGreaterThanOrEqual(3);
      expect(Object.keys(handovers)).toContain("SIGKILL");
      expect(Object.keys(handovers)).toContain("SIGTERM");
    } finally {
      await server.stop();
    }
  },
);

test("a function that only waits for its signal keeps its process, until releaseAll()", async () => {
  const folder = temporaryFolder();
  try {
    const leader = start("node", "lead-and-end.mjs", [join(folder.path, "locks.db")]);
    await leader.printed("leads");
    leader.child.kill("SIGTERM");
    expect(await leader.finished).toMatchObject({ code: 0, stdout: "leads\nover\n", stderr: "" });
  } finally {
    folder.remove();
  }
});

const at = (atMs: number, event: string, member: string, term?: number): Entry => ({
  ...{ atMs, event, member },
  ...(term === undefined ? {} : { term }),
});

test("a history with two leaders at once is found out, and so is a step too late", () => {
  const begun = [at(1, "start", "m1", 10), at(2, "step", "m1", 10)];
  const next = [at(5, "start", "m2", 11), at(6, "step", "m2", 11)];
  expect(check([...begun, at(4, "told", "m1", 10), ...next]).violations).toEqual([]);
  expect(check([...begun, ...next, at(7, "step", "m1", 10)]).violations).toEqual([
    "m1 works in term 10 while m2 leads",
  ]);
  expect(check([...begun, at(5, "start", "m2", 9)]).violations).toEqual([
    "term 9 has begun after 10",
  ]);
  expect(check([...begun, at(5, "start", "m1", 11)]).violations).toEqual([
    "m1 leads twice at once",
  ]);
});

test("a step right after SIGCONT counts apart, and one that comes later is a violation", () => {
  const stop = { ...at(3, "SIGSTOP", "m1"), contAtMs: 1_000 };
  const history = (stepMs: number): Entry[] => [
    ...[at(1, "start", "m1", 10), stop, at(900, "start", "m2", 11)],
    ...[at(stepMs, "step", "m1", 10), at(1_500, "told", "m1", 10)],
  ];
  const early = check(history(1_001));
  expect(early).toMatchObject({ violations: [], handovers: { SIGSTOP: [897] }, toldMs: [500] });
  expect(early.lateSteps).toHaveLength(1);
  expect(check(history(1_200)).violations).toEqual(["m1 works in term 10 while m2 leads"]);
  expect(check(history(1_001).slice(0, 4)).violations).toEqual([
    "m1 was never told that it was stopped",
  ]);
});
