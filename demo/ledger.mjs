// Reading the ledger.

import { readFileSync } from "node:fs";

/** The lines of the ledger, duplicates included: `{ id, account, cents }`. */
export function readLedger() {
  const text = readFileSync(new URL("ledger.csv", import.meta.url), "utf8");
  const [, ...lines] = text.trimEnd().split("\n");
  return lines.map((line) => {
    const [id, , account, cents] = line.split(",");
    return { id, account, cents: Number(cents) };
  });
}

/** Each payment once, by its id. */
export function uniquePayments(ledger) {
  return new Map(ledger.map((payment) => [payment.id, payment]));
}
