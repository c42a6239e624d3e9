// The rules of the bank, and what the ledger says of its accounts.

export const NAMES = ["anna", "ben", "clara", "david"];
export const LIMIT = 250;
const START = 100;

/** What is in each account, and under which fence it was last written, by the lines of the ledger. */
export function balancesOf(ledger) {
  const accounts = new Map(NAMES.map((name) => [name, { balance: START, fence: "" }]));
  for (const line of ledger.split("\n").slice(0, -1)) {
    const { from, to, amount, fences } = JSON.parse(line);
    for (const [name, change] of [
      [from, -amount],
      [to, amount],
    ]) {
      const { balance, fence } = accounts.get(name);
      const next = { balance: balance + change, fence: fences[name] };
      if (next.balance < 0 || next.balance > LIMIT) throw new Error("a rule was broken");
      if (next.fence < fence) throw new Error("a fence was smaller than the one before");
      accounts.set(name, next);
    }
  }
  return accounts;
}
