// Makes ledger.csv: the payments of one night, the same ones at every run.
// 1,260 payments on 28 accounts, three of them busy; 140 are delivered a second time, as a bank's
// interface does after a broken connection: same payment id, later in the file.
//
//   node demo/make-ledger.mjs > demo/ledger.csv

const PAYMENTS = 1260;
const DUPLICATES = 140;
const ACCOUNTS = 28;
const BUSY = 3;

let state = 20_260_331;

/** A number from 0 to below 1: mulberry32, so that the file is the same everywhere. */
function random() {
  state = (state + 0x6d2b79f5) | 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
}

const below = (limit) => Math.floor(random() * limit);
const digits = (value, width) => String(value).padStart(width, "0");

const accounts = Array.from({ length: ACCOUNTS }, (_, index) => ({
  number: `AC${digits(10_000 + index * 317 + below(300), 6)}`,
  currency: ["EUR", "EUR", "EUR", "USD", "CHF"][below(5)],
}));

const PURPOSES = ["salary", "rent", "invoice", "refund", "supplier", "tax", "insurance", "payroll"];

const payments = Array.from({ length: PAYMENTS }, (_, index) => {
  const busy = random() < 0.4;
  const account = accounts[busy ? below(BUSY) : BUSY + below(ACCOUNTS - BUSY)];
  const purpose = PURPOSES[below(PURPOSES.length)];
  // Most payments are small, some are large.
  const cents = Math.round(10 ** (2.5 + random() * 3.5));
  const second = 2 * 3600 + index * 9 + below(9);
  return {
    id: `P${digits(700_001 + index * 7 + below(7), 7)}`,
    second,
    account: account.number,
    cents,
    currency: account.currency,
    reference: `${purpose} ${digits(below(100_000), 5)}`,
  };
});

const repeats = Array.from({ length: DUPLICATES }, (_, index) => {
  const original = payments[Math.floor(((index + random()) * PAYMENTS) / DUPLICATES)];
  // Delivered again from seconds to an hour later.
  return { ...original, second: original.second + 5 + below(3600) };
});

const lines = [...payments, ...repeats]
  .sort((a, b) => a.second - b.second)
  .map(({ id, second, account, cents, currency, reference }) => {
    const time = [second / 3600, (second / 60) % 60, second % 60].map((n) =>
      digits(Math.floor(n), 2),
    );
    return [id, `2026-03-31T${time.join(":")}Z`, account, cents, currency, reference].join(",");
  });

console.log(
  ["payment_id,received_at,account,amount_cents,currency,reference", ...lines].join("\n"),
);
