import { type Check, type Facts, fail, ok, warn } from "./check.js";

/** So many keys that they are probably one-time ids. */
const MANY_KEYS = 1_000_000;

/** Judges a database that could be opened: a wrong file system, format or folder would have been refused before. */
export function judgeSqlite(facts: Facts): Check[] {
  const { version, isFile, journalMode, isIntact, sizeBytes, counters } = facts;
  const checks = [ok("version", `SQLite ${version}, part of this package`)];
  if (isFile !== true) {
    const message = "the locks are in memory, and end with this process";
    checks.push(warn("file", message, "name a file: sqlite:///var/lib/app/locks.db"));
  } else if (journalMode === "wal") {
    checks.push(ok("file", "on a file system of this machine, with a write-ahead log"));
  } else {
    const message = `the journal mode is ${journalMode}, not wal`;
    checks.push(fail("file", message, "let no other program change the file"));
  }
  checks.push(
    isIntact === true
      ? ok("integrity", "the file is in order")
      : fail("integrity", "the file is damaged", "end all users, and replace it"),
  );
  const size = `${Math.ceil(Number(sizeBytes) / 1024)} KiB, fences of ${counters} keys`;
  checks.push(
    Number(counters) > MANY_KEYS
      ? warn("size", size, "use keys that recur: each key leaves a row for ever")
      : ok("size", size),
  );
  return checks;
}
