// The table at the end, and whether everything came out right.

import { uniquePayments } from "./ledger.mjs";

/** Compares the books with the ledger, prints the table, and returns whether all is right. */
export function report({ ledger, store, tally, seconds, withoutLocks }) {
  const books = audit(ledger, store);
  const stale = tally.refused.find(({ worker }) => worker === tally.stopped?.worker);
  const staleDone = stale && books.payersOf(stale.id).some((worker) => worker !== stale.worker);
  const told = tally.told.find(({ worker }) => worker === tally.stopped?.worker);
  const takeover = tally.killed?.takenOver;
  const rows = [
    ["payments in the ledger", books.payments],
    ["duplicate lines", ledger.length - books.payments],
    ["paid exactly once", books.once],
    ["paid twice", books.twice],
    ["lost", books.lost],
    ["account balances wrong", books.wrongBalances],
    ["writes under a fence out of order", books.fencesBack],
    ["locks taken", tally.locks],
    ["waits for a lock", waits(tally.waits)],
    ["waiters woken by a release", tally.wakeups],
    ["takeover after kill -9", takeover ? tookOver(takeover) : "none"],
    ["its signal after SIGSTOP", told ? `worker ${told.worker} told: ${told.code}` : "none"],
    ["stale write after SIGSTOP", stale ? refusal(stale) : "none"],
    ["its payment done by another process", staleDone ? "yes" : "no"],
    ["time", `${seconds.toFixed(1)} s`],
  ];
  const shown = withoutLocks ? rows.filter(([name]) => !OF_LOCKS.has(name)) : rows;
  console.log(table(shown));
  const faults = [
    [books.once !== books.payments, "not every payment was made exactly once"],
    [books.wrongBalances > 0, "balances are wrong"],
    [!withoutLocks && books.fencesBack > 0, "fences went back"],
    [!withoutLocks && !takeover, "nobody took over from the killed process"],
    [!withoutLocks && tally.wakeups === 0, "nobody was woken by a release"],
    [!withoutLocks && !told, "the stopped process was not told that its lock was lost"],
    [!withoutLocks && !stale, "the stale write was not refused"],
    [!withoutLocks && stale && !staleDone, "nobody made the payment of the stopped process"],
  ].flatMap(([is, text]) => (is ? [text] : []));
  console.log(faults.length === 0 ? "All right." : `WRONG: ${faults.join("; ")}.`);
  return faults.length === 0;
}

const OF_LOCKS = new Set([
  "writes under a fence out of order",
  "locks taken",
  "waits for a lock",
  "waiters woken by a release",
  "its signal after SIGSTOP",
  "takeover after kill -9",
  "stale write after SIGSTOP",
  "its payment done by another process",
]);

// The journal has every write that the store took, in order; the account files have what is left of
// them. A payment is lost if its account does not show it, whatever the journal says.
function audit(ledger, store) {
  const unique = uniquePayments(ledger);
  const journal = store.readJournal();
  const payers = groupBy(journal, ({ id }) => id);
  const accounts = groupBy([...unique.values()], ({ account }) => account);
  let once = 0;
  let twice = 0;
  let lost = 0;
  let wrongBalances = 0;
  for (const [account, payments] of accounts) {
    const { payments: booked, balanceCents } = store.read(account);
    if (balanceCents !== payments.reduce((sum, { cents }) => sum + cents, 0)) wrongBalances += 1;
    for (const { id } of payments) {
      const times = payers.get(id)?.length ?? 0;
      const shown = booked.filter((other) => other === id).length;
      if (times === 1 && shown === 1) once += 1;
      if (times > 1 || shown > 1) twice += 1;
      if (times === 0 || shown === 0) lost += 1;
    }
  }
  return {
    payments: unique.size,
    once,
    twice,
    lost,
    wrongBalances,
    fencesBack: [...groupBy(journal, ({ account }) => account).values()].reduce(
      (sum, writes) =>
        sum + writes.filter(({ fence }, i) => i > 0 && fence <= writes[i - 1].fence).length,
      0,
    ),
    payersOf: (id) => (payers.get(id) ?? []).map(({ worker }) => worker),
  };
}

function groupBy(items, keyOf) {
  const groups = new Map();
  for (const item of items) {
    const key = keyOf(item);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(item);
  }
  return groups;
}

function waits(values) {
  if (values.length === 0) return "0";
  const sorted = [...values].sort((a, b) => a - b);
  const median = sorted[Math.floor(sorted.length / 2)];
  return `${values.length} (median ${median.toFixed(0)} ms, longest ${sorted.at(-1).toFixed(0)} ms)`;
}

function tookOver({ worker, afterMs }) {
  return `by worker ${worker} after ${(afterMs / 1000).toFixed(2)} s`;
}

function refusal({ worker, fence, seen }) {
  return `worker ${worker} refused, fence ${Number(fence)} < ${Number(seen)}`;
}

function table(rows) {
  const left = Math.max(...rows.map(([name]) => name.length));
  const right = Math.max(...rows.map(([, value]) => String(value).length));
  const rule = `+${"-".repeat(left + 2)}+${"-".repeat(right + 2)}+`;
  const body = rows.map(
    ([name, value]) => `| ${name.padEnd(left)} | ${String(value).padEnd(right)} |`,
  );
  return [rule, ...body, rule].join("\n");
}
