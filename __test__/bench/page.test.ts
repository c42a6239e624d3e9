/** The page that is written from what a run of `npm run bench -- alternatives` has measured. */

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { LinkChecker, LinkState } from "linkinator";
import { beforeAll, expect, onTestFinished, test } from "vitest";
// @ts-expect-error a module of the benchmarks, in plain JavaScript
import { contenders as allContenders } from "../../bench/alternatives/contenders.mjs";
// @ts-expect-error a module of the benchmarks, in plain JavaScript
import { pageOf as makePage } from "../../bench/alternatives/page.mjs";
// @ts-expect-error a module of the scripts, in plain JavaScript
import { citationFaults } from "../../scripts/lib/citations.mjs";
import { root } from "../package/installed.js";
import { temporaryFolder } from "../support/temp.js";

type Sample = { contender: string; run: number } & Record<string, unknown>;
type Report = { samples: Record<string, Sample[]> } & Record<string, unknown>;

const FOLDER = "docs/benchmarks";

const contenders = allContenders as Record<string, { name: string; lacks: string }>;
const pageOf = makePage as (...reports: Report[]) => Promise<Map<string, string>>;

/** Three runs of each row. The contender's place in the list sets its figures; the middle run is the median. */
function report(): Report {
  const samples: Record<string, Sample[]> = {};
  const add = (
    row: string,
    stores: RegExp,
    levels: Record<string, number>[],
    measured: (factor: number) => Record<string, number>,
  ): void => {
    samples[row] = Object.keys(contenders)
      .filter((id) => stores.test(id))
      .flatMap((contender, place) =>
        levels.flatMap((level) =>
          [0.5, 1, 2].map((spread, run) => ({
            ...{ contender, run, ...level, ...measured(spread * (1 + place / 10)) },
          })),
        ),
      );
  };
  const costs = (factor: number): Record<string, number> => ({
    ...{ rate: 10_000 * factor, p50: 90 * factor, p99: 400 * factor },
    ...{ mainCpu: 20 * factor, cpu: 30 * factor },
  });
  const loop = (factor: number): Record<string, number> => ({
    ...{ loopP99: 2 * factor, loopMax: 9 * factor },
  });
  add("pairs", /./, [{ inFlight: 1 }, { inFlight: 16 }], costs);
  add("sets", /redis.*(syncguard|universal)/, [{ keys: 2 }, { keys: 4 }], costs);
  const slots = [10, 100].flatMap((count) => [{ slots: count, inFlight: 64 }]);
  add("slots", /redis.*(syncguard|semaphore)/, slots, costs);
  add("handOffSlots", /redis.*(syncguard|semaphore)/, [{ slots: 4 }], (factor) => ({
    ...{ share: 0.3 * factor, p50: 80 * factor, p99: 150 * factor, longest: 300 * factor },
  }));
  add("contended", /./, [{ inFlight: 16 }], costs);
  add("handOff", /./, [{}], (factor) => ({
    ...{ share: 0.3 * factor, rate: 100 * factor, p50: 80 * factor, p99: 150 * factor },
    ...{ longest: 300 * factor },
  }));
  add("holding", /^redis.*(syncguard|redlock)/, [{}], (factor) => ({
    ...{ mainCpu: 0.1 * factor, cpu: 0.2 * factor, ...loop(factor) },
    ...{ extensions: 2_000 * factor, lost: 0, gone: 0 },
  }));
  add("http", /redis|postgres/, [{ connections: 8 }, { connections: 64 }], (factor) => ({
    ...{ rate: 4_000 * factor, p50: 9 * factor, p99: 20 * factor, ...loop(factor) },
  }));
  return {
    ...{
      file: "quiet.json",
      date: "2026-01-02",
      minutes: 11.6,
      load: 0,
      runs: 3,
      seconds: 0.5,
      locks: 10_000,
    },
    machine: { cpu: "Test & Sons", cores: 2, memoryGiB: 4, system: "Linux" },
    versions: { "Node.js": "20.0.0", Redis: "7.0.15" },
    samples,
  };
}

let files: Map<string, string>;
let page: string;
beforeAll(async () => {
  files = await pageOf(report());
  page = files.get(`${FOLDER}.md`) ?? "";
});

test("it has medians, and what each contender lacks", () => {
  const lines = page.split("\n").map((line) => line.replaceAll(/ +/g, " "));
  expect(lines).toContain("| **syncguard** | 10,000 | 10,000 | 20 (30) | 20 (30) |");
  expect(lines).toContain("| node-redlock | 14,000 | 14,000 | 28 (42) | 28 (42) |");
  expect(lines.join("\n")).toMatch(/^\| Redis: \*\*syncguard\*\* \| – \| `createRedisBackend/m);
  for (const { name, lacks } of Object.values(contenders)) {
    expect(page).toContain(name);
    expect(page).toContain(lacks);
  }
  expect(page).toContain("2 cores, Test & Sons, 4 GiB, Linux; 2026-01-02; 12 minutes.");
  expect(page).toContain("Redis 7.0.15");
});

test("it says where this package is behind, by how much and why", () => {
  const [, slower = ""] = page.replaceAll("\n", " ").split("## Where this package is behind");
  expect(slower).toContain("1 in flight: 0.71 × node-redlock; also at 16");
  expect(slower).toContain("### Hand-off on PostgreSQL");
  expect(slower).toContain("The server keeps the queue for an advisory lock");
  // Their CPU is higher in these samples.
  expect(slower).not.toContain("CPU of the main thread for a pair");
});

test("a busy host has a table with the figure that counts of each row", async () => {
  expect(page).not.toContain("busy host");
  const busy = { ...report(), busy: true, file: "busy.json", date: "2026-01-03" };
  for (const sample of busy.samples["pairs"] ?? []) sample["rate"] = Number(sample["rate"]) * 3;
  const made = await pageOf(report(), busy);
  const text = made.get(`${FOLDER}.md`)?.replaceAll(/ +/g, " ") ?? "";
  expect(text).toContain("| **syncguard** | 10,000 | 10,000 | 20 (30) | 20 (30) |\n");
  expect(text).toMatch(/\[a busy host\]\(#on-a-busy-host\)/);
  expect(text).toContain("2026-01-02; 12 minutes, and on the busy host 2026-01-03; 12 minutes.");
  const [, table = ""] = text.split("## On a busy host");
  expect(table).toMatch(/\[busy\.json\]\(benchmarks\/busy\.json\) has all samples/);
  expect(table).toContain("| Redis: **syncguard** | 30,000 | 10,000 | 30 | 4,000 |\n");
  // An HTTP server was not measured on Firestore.
  expect(table).toMatch(/^\| Firestore emulator: \*\*syncguard\*\* \|.* – \|$/m);
});

test("rows that were measured apart stand on the page with those of the others", async () => {
  const [most, some] = [report(), { ...report(), file: "some.json", date: "2026-01-04" }];
  some.samples = { slots: most.samples["slots"] ?? [] };
  delete most.samples["slots"];
  const made = await pageOf(most, some);
  const text = made.get(`${FOLDER}.md`) ?? "";
  expect(text.replaceAll("\n", " ")).toMatch(
    /_At most N at a time_: [^.]*; 2026-01-04; 12 minutes/,
  );
  expect(text).toContain("[some.json](benchmarks/some.json)");
  expect(made.get(`${FOLDER}/slots.svg`)).toBe(files.get(`${FOLDER}/slots.svg`));
});

test("what cannot stand on one page is refused", async () => {
  const busy = { ...report(), busy: true };
  await expect(pageOf(busy)).rejects.toThrow("must be that of a quiet host");
  await expect(pageOf(report(), report())).rejects.toThrow("pairs was measured twice");
  const one = { ...busy, samples: { pairs: busy.samples["pairs"] ?? [] } };
  await expect(pageOf(report(), one)).rejects.toThrow("has the rows of a busy one");
  await expect(pageOf(report(), { ...busy, versions: {} })).rejects.toThrow("differ in versions");
  const some = report();
  delete some.samples["pairs"];
  await expect(pageOf(some)).rejects.toThrow("not all of pairs");
});

test("it says so if this package is nowhere behind", async () => {
  const best = report();
  for (const samples of Object.values(best.samples)) {
    for (const sample of samples) {
      if (sample.contender.endsWith("/syncguard")) continue;
      for (const field of ["rate", "share"]) if (field in sample) sample[field] = 0.01;
    }
  }
  expect((await pageOf(best)).get(`${FOLDER}.md`)).toContain("There is none in this run.");
});

test("its charts have units and the spread of each figure, and show every contender", () => {
  const svgs = [...files].filter(([path]) => path.endsWith(".svg"));
  expect(svgs.map(([path]) => path).sort()).toEqual(
    ["hand-off", "hand-off-slots", "holding", "http-p99", "http", "sets", "slots"]
      .concat(["pairs-firestore", "pairs-postgres", "pairs-redis"])
      .map((name) => `docs/benchmarks/${name}.svg`)
      .sort(),
  );
  for (const [, svg] of svgs) {
    expect(openElements(svg)).toEqual([]);
    expect(svg).toMatch(/per second|ms|%/);
    expect(svg).toContain("prefers-color-scheme: dark");
    expect(svg).toContain('<path stroke="var(--ink)"');
    expect(svg).not.toMatch(/NaN|undefined|Infinity/);
  }
  const redis = files.get(`${FOLDER}/pairs-redis.svg`) ?? "";
  for (const [id, { name }] of Object.entries(contenders)) {
    if (id.startsWith("redis/")) expect(redis.split(`>${name}<`)).toHaveLength(3);
  }
});

test("what it cites and links to is there", async () => {
  const docs = ["docs/postgres.md", "docs/threads.md", "docs/decisions/io-thread.md"].map(
    (path) => [path, readFileSync(`${root}/${path}`, "utf8")],
  );
  const all = new Map([
    ...(docs as [string, string][]),
    ...files,
    ["docs/benchmarks/quiet.json", ""],
  ]);
  const find = citationFaults as (files: Map<string, string>) => Promise<string[]>;
  const faults = await find(all);
  expect(faults.filter((fault) => fault.startsWith("docs/benchmarks"))).toEqual([]);

  const folder = temporaryFolder();
  onTestFinished(folder.remove);
  for (const [path, text] of all) {
    mkdirSync(dirname(join(folder.path, path)), { recursive: true });
    writeFileSync(join(folder.path, path), text);
  }
  const { links } = await new LinkChecker().check({
    path: "docs/benchmarks.md",
    ...{ serverRoot: folder.path, markdown: true, checkFragments: true },
    linksToSkip: ["^https?://(?!localhost:)"],
  });
  expect(links.length).toBeGreaterThan(10);
  expect(links.filter(({ state }) => state === LinkState.BROKEN).map(({ url }) => url)).toEqual([]);
});

/** Elements of an SVG that are not ended, or ended twice. */
function openElements(svg: string): string[] {
  const open: string[] = [];
  for (const [, end, name = "", alone] of svg.matchAll(/<(\/?)(\w+)(?:"[^"]*"|[^">])*?(\/?)>/g)) {
    if (end === "/" && open.pop() !== name) return [...open, name];
    if (end === "" && alone === "") open.push(name);
  }
  return open;
}
