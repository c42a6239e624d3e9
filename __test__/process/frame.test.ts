/** What verify/frame does for its scenes, and their judges: what goes wrong is told. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
// @ts-expect-error a module in plain JavaScript
import { perform as play } from "../../verify/frame/play.mjs";
// @ts-expect-error a module in plain JavaScript
import { randomOf as random } from "../../verify/frame/seed.mjs";
// @ts-expect-error a module in plain JavaScript
import { additions as adding } from "../../verify/guards/scene.mjs";
// @ts-expect-error a module in plain JavaScript
import { periods as repeating } from "../../verify/once/scene.mjs";
import { temporaryFolder } from "../support/temp";

type Member = { child: { pid: number }; ended: Promise<{ signal: string | null }> };
type Crew = {
  start: (program: string, task: object, settings?: object) => Member;
  send: (member: Member, signal: string) => void;
};
type Judge = (notes: object[], stage: object) => { violations: string[] };

const perform = play as (scene: object, place: object, settings: object) => Promise<object>;
const randomOf = random as (seed: number) => () => number;
const judges = { additions: adding as { judge: Judge }, periods: repeating as { judge: Judge } };

/** Plays a scene of one process, which does what `text` says. */
async function performed(
  text: string,
  run: (member: Member, crew: Crew) => Promise<unknown>,
  settings = {},
): Promise<{ violations: string[]; pid: number }> {
  const folder = temporaryFolder();
  const program = join(folder.path, "member.mjs");
  writeFileSync(program, text);
  let pid = 0;
  const scene = {
    async run({ crew }: { crew: Crew }): Promise<void> {
      const member = crew.start(program, { name: "m1" }, settings);
      pid = member.child.pid;
      await run(member, crew);
    },
    judge: () => ({ violations: [] }),
  };
  try {
    const { violations } = (await perform(scene, {}, {})) as { violations: string[] };
    return { violations, pid };
  } finally {
    folder.remove();
  }
}

test("a process that fails is a violation, with what it said", async () => {
  const text = "console.error('no luck'); process.exitCode = 3;";
  const { violations } = await performed(text, ({ ended }) => ended);
  expect(violations).toEqual(["m1 has ended with 3: no luck\n"]);
});

test("a process may end by a signal that it was sent or that it may send itself, and by no other", async () => {
  const suicide = "process.kill(process.pid, 'SIGKILL');";
  const died = await performed(suicide, ({ ended }) => ended);
  expect(died.violations).toEqual(["m1 has ended with SIGKILL: "]);
  const allowed = await performed(suicide, ({ ended }) => ended, { diesBy: "SIGKILL" });
  expect(allowed.violations).toEqual([]);
  const told = await performed("setInterval(() => {}, 1e6);", async (member, crew) => {
    crew.send(member, "SIGTERM");
    expect(await member.ended).toMatchObject({ signal: "SIGTERM" });
  });
  expect(told.violations).toEqual([]);
});

test("no process outlives its scene", async () => {
  const { violations, pid } = await performed("setInterval(() => {}, 1e6);", async () => {});
  expect(violations).toEqual([]);
  expect(() => process.kill(pid, 0)).toThrow("ESRCH");
});

test("a seed decides all numbers", () => {
  const numbers = (seed: number): number[] => Array.from({ length: 9 }, randomOf(seed));
  expect(numbers(7)).toEqual(numbers(7));
  expect(numbers(7)).not.toEqual(numbers(8));
});

test("additions that are lost, made twice or left out are found out", () => {
  const { judge } = judges.additions;
  const notes = (items: string[]): object[] => [
    { event: "stopped" },
    ...["p0.0", "p0.1"].map((item) => ({ event: "committed", item })),
    { event: "found", n: 2, items },
  ];
  const stage = { transactions: 2, processes: 1, guarded: true };
  expect(judge(notes(["p0.0", "p0.1"]), stage).violations).toEqual([]);
  expect(judge(notes(["p0.0", "p0.0"]), stage).violations).toEqual(["1 were lost", "1 were twice"]);
  expect(judge(notes(["p0.0"]), stage).violations).toEqual(["1 were lost", "1 were miscounted"]);
  expect(judge(notes(["p0.0", "p0.1"]).slice(1), stage).violations).toEqual([
    "no process was stopped",
  ]);
  expect(judge(notes(["p0.0", "p0.1"]), { ...stage, transactions: 3 }).violations).toEqual([
    "the processes have made 2 of 3 transactions",
  ]);
  const control = { ...stage, guarded: false };
  expect(judge(notes(["p0.0"]), control).violations).toEqual([]);
  expect(judge(notes(["p0.0", "p0.1"]), control).violations).toHaveLength(1);
});

test("periods that are done twice or missed are found out, and not held against the rules of others", () => {
  const { judge } = judges.periods;
  const stage = { rule: "once", jobs: 1, periods: 2 };
  const done = (...numbers: number[]): object[] =>
    numbers.flatMap((period) =>
      ["begun", "ended", "stored"].map((event) => ({ event, job: 0, period })),
    );
  expect(judge(done(1, 2, 3, 3), stage).violations).toEqual([]);
  expect(judge(done(1, 1), stage).violations).toEqual([
    "1 of 2 periods were done twice",
    "1 of 2 periods were missed",
  ]);
  const found = { event: "found", job: 0, period: 2 };
  expect(judge([...done(1), found], stage).violations).toEqual([]);
  expect(judge(done(1, 1), { ...stage, rule: "nothing" })).toMatchObject({
    figures: { twice: 1, missed: 1 },
    violations: [],
  });
});
