/** Reports of runs: what the programs print, and the tables of docs/reliability that it goes to. */

import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as writer from "../../scripts/lib/records.mjs";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as readers from "../../scripts/lib/reports.mjs";

type Row = Record<string, string | number>;
const { recording, withRows } = writer as {
  recording: (words: string[]) => { words: string[]; record: (...of: unknown[]) => Promise<void> };
  withRows: (text: string, heading: string, rows: Row[]) => string;
};
const reports = readers as Record<string, (of: never) => Row>;
const { historyRow, testRow, fuzzRow } = readers as Record<
  "historyRow" | "testRow" | "fuzzRow",
  (output: string) => Row | undefined
>;
const { matrixRows } = readers as { matrixRows: (output: string) => Row[] };

const root = join(import.meta.dirname, "../..");
const page = (name: string): string =>
  readFileSync(join(root, "docs/reliability", `${name}.md`), "utf8");

const TABLE = `# Page

## Others

| store | date | seconds |
| ----- | ---- | ------: |
| redis | then |       1 |

## Runs

Said before.

| store | row | date | what | seconds |
| ----- | --- | ---- | ---- | ------: |
| redis | a   | then | one  |       5 |
| redis | b   | then | two  |       6 |

Said after.
`;

describe("a table", () => {
  test("has one row for each run, in which the columns before the date say what was run", () => {
    const rows = [
      { store: "redis", row: "b", date: "now", what: "three", seconds: 7_000 },
      { store: "sqlite", row: "b", date: "now", what: "a | b\nc", seconds: 8 },
    ];
    expect(withRows(TABLE, "Runs", rows).split("Said before.")[1]).toBe(`

| store | row | date | what | seconds |
| ----- | --- | ---- | ---- | ------: |
| redis | a | then | one | 5 |
| redis | b | now | three | 7,000 |
| sqlite | b | now | a \\| b c | 8 |

Said after.
`);
  });

  test("keeps what a later run does not say, and what was escaped", () => {
    const first = withRows(TABLE, "Runs", [
      { store: "redis", row: "a", date: "now", what: "x | y", seconds: 1 },
    ]);
    const second = withRows(first, "Runs", [
      { store: "redis", row: "a", date: "later", seconds: 2 },
    ]);
    expect(second).toContain("| redis | a | later | x \\| y | 2 |");
  });

  test("can be empty, and can end the page", () => {
    const text = "## Runs\n\n| store | date |\n| --- | --- |";
    const rows = [{ store: "redis", date: "now" }];
    expect(withRows(text, "Runs", rows)).toBe(`${text}\n| redis | now |`);
    expect(withRows(`${text}\n`, "Runs", rows)).toBe(`${text}\n| redis | now |\n`);
  });

  test.each([
    ["Nothing", { store: "redis" }, 'there is no heading "Nothing"'],
    ["Page", { store: "redis" }, 'no table under "Page"'],
    ["Others", { store: "redis", date: "now", seconds: 1, more: 2 }, "no column more"],
    ["Others", { store: "sqlite", date: "now" }, "the row has no seconds"],
  ])("is not guessed: %s, %j", (heading, row, message) => {
    expect(() => withRows(TABLE, heading, [row])).toThrow(message);
  });

  test("is written only if that is wanted", async () => {
    expect(recording(["redis", "--record", "60"]).words).toEqual(["redis", "60"]);
    const { words, record } = recording(["redis", "60"]);
    expect(words).toEqual(["redis", "60"]);
    await record("no such page", "no such heading", [{}]);
  });
});

const HISTORY = `seed 7: 35421 operations, 12050 grants, 44 unknown; 3 stopped, 1 killed; gathered: 11 granted, 19 in vain; register: 6014 accepted, 52 refused, 0 lost; shared: 1503 joins, 31 gates
0 violations
`;
const MATRIX = `redis reset                  40686 operations, 12350 grants, 2 unknown, 58 stale writes refused; 2 faults, back after 13 ms, longest outage 1013 ms; no errors; clean after 24 ms; 0 violations
redis waiters                1617 turns, 1 killed; no errors; clean after 13 ms; 0 violations
redis silence                1000 operations, 300 grants, 0 unknown, 2 stale writes refused; 2 faults, back after 20 ms, longest outage 5 ms; no errors; clean after 9 ms; 2 violations
sqlite busy                  5 operations, 1 grants, 0 unknown, 0 stale writes refused; 1 faults, back after 3 ms, longest outage 4 ms; no errors; clean after 1 ms; 1 violations
  nobody worked any more when it was mended
`;
const FUZZ = `#2	INITED cov: 870 ft: 871 corp: 1/1b exec/s: 0 rss: 40Mb
#2563318	DONE   cov: 874 ft: 2100 corp: 350/9Kb lim: 4096 exec/s: 14161 rss: 400Mb
Done 2563318 runs in 181 second(s)
`;
const TESTS = `test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 506 filtered out; finished in 39.37s
test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s
`;

describe("what is printed", () => {
  test("by torture, fits the table of histories", () => {
    const row = { store: "redis", date: "now", seed: "7", seconds: 8, ...historyRow(HISTORY) };
    expect(withRows(page("runs"), "Histories", [row])).toContain(
      "| redis | now | 7 | 8 | 35,421 | 12,050 | 44 | 3 | 1 | 11 | 1,503 | 31 | 52 | 0 | 0 |",
    );
    expect(historyRow("no lock was granted")).toBeUndefined();
  });

  test("by the matrix, fits its table: a row for each store", () => {
    const dated = matrixRows(MATRIX).map((row) => ({ ...row, date: "now", seed: "7", seconds: 5 }));
    const text = withRows(page("matrix"), "What came of it", dated);
    expect(text).toContain("| redis | now | 7 | 5 | 3 | 41,686 | 60 | 20 | 1,013 | 24 | 2 |");
    expect(text).toContain("| sqlite | now | 7 | 5 | 1 | 5 | 0 | 3 | 4 | 1 | 1 |");
  });

  test("by cargo-fuzz, fits the row of the target", () => {
    const row = { target: "`keys`", date: "now", ...fuzzRow(FUZZ) };
    expect(withRows(page("runs"), "Fuzzing", [row])).toMatch(
      /^\| `keys` \| now \| 181 \| 2,563,318 \| 874 \|$/m,
    );
    expect(fuzzRow("error: no such target")).toBeUndefined();
  });

  test.each(["Simulation", "The model"])("by cargo test, fits the table: %s", (heading) => {
    const row = { run: "all", date: "now", seconds: 41, ...testRow(TESTS) };
    expect(withRows(page("runs"), heading, [row])).toContain("| all | now | 41 | 7 | 1 |");
  });

  test.each([
    [
      "Leaders",
      { store: "redis", seed: "7", seconds: 60 },
      "leaderRow",
      { terms: 40, steps: 4650, lateSteps: [{}], violations: [] },
      "| 40 | 4,650 | 1 | 0 |",
    ],
    [
      "Once per period",
      { rule: "once", store: "sqlite" },
      "periodRow",
      { kills: 3, periods: 100, begun: 104, cutShort: 4, endedTwice: 0, twice: 0, missed: 0 },
      "| 100 | 3 | 104 | 4 | 0 | 0 | 0 |",
    ],
    [
      "Guards",
      { store: "redis", guards: "with", seconds: 9 },
      "guardRow",
      { committed: 99, refused: 1, failed: 0, stopped: 4, lost: 0, twice: 1, miscounted: 2 },
      "| 99 | 1 | 0 | 4 | 0 | 3 |",
    ],
  ])("by others, fits the table: %s", (heading, how, kind, found, cells) => {
    const row = { ...how, date: "now", ...reports[kind]?.(found as never) };
    expect(withRows(page("runs"), heading, [row])).toContain(cells);
  });
});

test("the page of the matrix says what each of its rows does", () => {
  const folder = join(root, "verify/torture/src/matrix");
  const text = readdirSync(folder).map((name) => readFileSync(join(folder, name), "utf8"));
  const names = Array.from(
    text.join("\n").matchAll(/\b(?:act|Act::new)\(\s*(?:[\w"]+,\s*)?"([\w-]+)"/g),
    ([, name]) => name,
  );
  expect(names.length).toBeGreaterThan(30);
  const [described = ""] = page("matrix").split("## What came of it");
  expect(names.filter((name) => !described.includes(`\`${name}\``))).toEqual([]);
});
