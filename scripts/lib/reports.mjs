// What the programs that look for mistakes have printed, as rows for the tables of docs/reliability.

/** The row of `torture run`; undefined if it has come to no end. */
export function historyRow(output) {
  const counted =
    /(?<operations>\d+) operations, (?<grants>\d+) grants, (?<unknown>\d+) unknown; (?<stopped>\d+) stopped, (?<killed>\d+) killed; gathered: (?<gathered>\d+) granted, \d+ in vain; register: \d+ accepted, (?<refused>\d+) refused, (?<lost>\d+) lost; shared: (?<joins>\d+) joins, (?<gates>\d+) gates/.exec(
      output,
    );
  const violations = /^(\d+) violations$/m.exec(output);
  if (counted === null || violations === null) return undefined;
  const { operations, grants, unknown, stopped, killed, gathered, refused, lost, joins, gates } =
    counted.groups;
  return {
    operations: Number(operations),
    grants: Number(grants),
    "outcome unknown": Number(unknown),
    stopped: Number(stopped),
    killed: Number(killed),
    gathered: Number(gathered),
    joins: Number(joins),
    gates: Number(gates),
    "late writes refused": Number(refused),
    "accepted writes lost": Number(lost),
    violations: Number(violations[1]),
  };
}

/** The rows of `torture matrix`: one for each store, over all rows of the matrix that were played on it. */
export function matrixRows(output) {
  const played = [...output.matchAll(/^([\w-]+) ([\w-]+) +(.*); (\d+) violations$/gm)];
  const stores = [...new Set(played.map(([, store]) => store))];
  return stores.map((store) => {
    const rows = played.filter((row) => row[1] === store);
    const facts = rows.map((row) => row[3]).join("\n");
    const figures = (pattern) => Array.from(facts.matchAll(pattern), ([, count]) => Number(count));
    return {
      store,
      rows: rows.length,
      operations: sum(figures(/(\d+) operations/g)),
      "late writes refused": sum(figures(/(\d+) stale writes refused/g)),
      "back after, ms": Math.max(...figures(/back after (\d+) ms/g)),
      "longest outage, ms": Math.max(...figures(/longest outage (\d+) ms/g)),
      "clean after, ms": Math.max(...figures(/clean after (\d+) ms/g)),
      violations: sum(rows.map((row) => Number(row[4]))),
    };
  });
}

function sum(counts) {
  return counts.reduce((all, count) => all + count, 0);
}

/** How many tests of `cargo test` have passed and failed, in all of its programs. */
export function testRow(output) {
  const results = [...output.matchAll(/^test result: .*? (\d+) passed; (\d+) failed;/gm)];
  const total = (at) => sum(results.map((result) => Number(result[at])));
  return { "tests passed": total(1), failed: total(2) };
}

/** The row of `cargo fuzz run`; undefined if it has come to no end. */
export function fuzzRow(output) {
  const runs = /^Done (\d+) runs in (\d+) second/m.exec(output);
  const edges = /^#\d+\s+DONE\s+cov: (\d+)/m.exec(output);
  if (runs === null || edges === null) return undefined;
  return { seconds: Number(runs[2]), executions: Number(runs[1]), edges: Number(edges[1]) };
}

/** The row of leaders on a store: what was found, by verify/leader/check.mjs. */
export function leaderRow({ terms, steps, lateSteps, violations }) {
  return {
    terms,
    steps,
    "steps before it was told": lateSteps.length,
    violations: violations.length,
  };
}

/** The row of a rule for jobs that are done once per period, by verify/once/scene.mjs. */
export function periodRow({ kills, periods, begun, cutShort, endedTwice, twice, missed }) {
  return {
    periods,
    killed: kills,
    begun,
    "cut short": cutShort,
    "ended twice": endedTwice,
    "done twice": twice,
    missed,
  };
}

/** The row of transactions with guards, or without, by verify/guards/scene.mjs. */
export function guardRow({ committed, refused, failed, stopped, lost, twice, miscounted }) {
  return { committed, refused, failed, stopped, lost, "twice or miscounted": twice + miscounted };
}
