import { type Check, type Facts, fail, ok, warn } from "./check.js";

/** Older ones do not understand the statements. */
const OLDEST_SUPPORTED = 12;

/** Older ones are not maintained any more. */
const OLDEST_MAINTAINED = 13;

/** How full the server may be, of its connections. */
const CROWDED = 0.9;

const SETUP = "npx syncguard setup, as a role that may create tables";

/** Judges how the server and the tables are set up. The names of the tables are those that were checked for SQL. */
export function judgePostgres(facts: Facts, locks: string, fences: string): Check[] {
  return [
    version(facts),
    ...server(facts),
    ...schema(facts, locks, fences),
    ...rights(facts, locks, fences),
    ...durability(facts),
    ...connections(facts),
  ];
}

function version({ version, versionNumber }: Facts): Check {
  const name = "version";
  const major = Math.floor(Number(versionNumber) / 10_000);
  if (major >= OLDEST_MAINTAINED) return ok(name, `PostgreSQL ${version}`);
  if (major < OLDEST_SUPPORTED) {
    const message = `PostgreSQL ${version}, and ${OLDEST_SUPPORTED} or later is needed`;
    return fail(name, message, "upgrade the server");
  }
  return warn(name, `PostgreSQL ${version} is not maintained any more`, "upgrade the server");
}

function server({ isStandby, readOnly }: Facts): Check[] {
  const name = "writable";
  if (isStandby === true) {
    return [fail(name, "this server is a standby, and takes no locks", "connect to the primary")];
  }
  if (readOnly === true) {
    return [
      fail(name, "transactions are read-only", "see default_transaction_read_only of the role"),
    ];
  }
  return [ok(name, "a primary that accepts writes")];
}

function schema(facts: Facts, locks: string, fences: string): Check[] {
  const name = "schema";
  const missing = [facts.locksTable !== true && locks, facts.fencesTable !== true && fences].filter(
    (table) => table !== false,
  );
  if (missing.length > 0) {
    return [fail(name, `no table ${missing.join(" and no table ")} on the search_path`, SETUP)];
  }
  const { locksColumnsMissing, fencesColumnsMissing } = facts;
  for (const [table, columns] of [
    [locks, locksColumnsMissing],
    [fences, fencesColumnsMissing],
  ]) {
    if (columns !== undefined) {
      const fix =
        "compare it with docs/postgres.md of the package syncguard: it may be another application's";
      return [fail(name, `the table ${table} has no column ${columns}`, fix)];
    }
  }
  const checks = [ok(name, `tables ${locks} and ${fences}`)];
  if (facts.ownerColumn !== true) {
    checks.push(warn("labels", `${locks} has no column for owners: labels are not kept`, SETUP));
  }
  if (facts.doneColumns !== true) {
    checks.push(warn("once", `${fences} has no columns for once(): it cannot be used`, SETUP));
  }
  if (facts.lockIdIndex === true && facts.expiresIndex === true) {
    checks.push(ok("indexes", "those on lock_id and expires_at_ms are there and valid"));
    const rights = `SELECT (key, lock_id, expires_at_ms) and UPDATE of one column of ${locks}`;
    const storing = `one with done(tx) also SELECT, INSERT and UPDATE on ${fences}`;
    checks.push(ok("guards", `a transaction with a guard needs ${rights}; ${storing}`));
  } else {
    const index =
      facts.lockIdIndex === true
        ? "expires_at_ms"
        : "lock_id, without which nothing can be guarded";
    const fix = `${SETUP}; if the index is there and invalid, REINDEX it`;
    checks.push(fail("indexes", `${locks} lacks its index on ${index}, or it is invalid`, fix));
  }
  if (facts.readersIndex !== true) {
    const lacks = `${locks} lacks its index on readers, or it is invalid: who leaves a shared lock looks through all locks`;
    checks.push(warn("shared locks", lacks, SETUP));
  }
  return checks;
}

function rights(facts: Facts, locks: string, fences: string): Check[] {
  const checks: Check[] = [];
  for (const [table, missing] of [
    [locks, facts.locksRightsMissing],
    [fences, facts.fencesRightsMissing],
  ]) {
    if (missing === undefined) continue;
    const fix = `GRANT ${missing} ON "${table}" TO the role`;
    checks.push(fail("rights", `the role lacks ${missing} on ${table}`, fix));
  }
  if (facts.rowSecurity !== undefined) {
    const message = `row level security keeps rows of ${facts.rowSecurity} from the role`;
    const fix = "give it a policy for all rows: docs/postgres.md, Row level security";
    checks.push(fail("rights", message, fix));
  } else if (facts.rowPolicies !== undefined) {
    const message = `row level security on ${facts.rowPolicies} has policies that may hide rows from the role`;
    const fix = "all who share locks must see all rows: docs/postgres.md, Row level security";
    checks.push(warn("rights", message, fix));
  }
  if (facts.mayNotify === false) {
    const fix = "GRANT EXECUTE ON FUNCTION pg_notify(text, text) TO the role";
    checks.push(warn("wake-ups", "the role may not call pg_notify: waiters poll", fix));
  }
  return checks;
}

function durability(facts: Facts): Check[] {
  const { fsync, fullPageWrites, synchronousStandbys } = facts;
  const name = "durability";
  if (fsync !== true) {
    return [fail(name, "fsync is off: a crash may lose locks and repeat fences", "set fsync = on")];
  }
  if (fullPageWrites !== true) {
    const message = "full_page_writes is off: a crash may damage the tables";
    return [warn(name, message, "set full_page_writes = on")];
  }
  if (synchronousStandbys === undefined || synchronousStandbys === "") {
    const message =
      "fsync is on; no standby is synchronous, so that a failover may lose the last locks";
    return [ok(name, message)];
  }
  return [standbys(facts, String(synchronousStandbys))];
}

/** Judges whether those are connected for whom every commit waits. */
function standbys(facts: Facts, names: string): Check {
  const { synchronousCommit, standbys, confirmingStandbys } = facts;
  const name = "durability";
  if (synchronousCommit === "local") {
    const message =
      "fsync is on; synchronous_commit is local, so that a failover may lose the last locks";
    return warn(name, message, "set synchronous_commit = on for the role");
  }
  const needed = Number(/^\s*(?:(?:any|first)\s+)?(\d+)\s*\(/i.exec(names)?.[1] ?? 1);
  // Which of them confirm, some roles are not told. Where there are too few, there are too few of these.
  const known = Number(confirmingStandbys ?? standbys);
  if (known < needed) {
    const there = `${known} of ${needed} synchronous ${needed === 1 ? "standby" : "standbys"}`;
    const message = `synchronous_standby_names waits for who is not there: ${there} connected. No lock can be taken`;
    return fail(name, message, "connect the standby, or change synchronous_standby_names");
  }
  if (confirmingStandbys === undefined) {
    const message = `fsync is on, and ${known} standbys are connected; whether they are synchronous, the role may not know`;
    return warn(name, message, "GRANT pg_read_all_stats TO the role, at least for the doctor");
  }
  return ok(name, `fsync is on, and ${known} of the standbys confirm each commit`);
}

function connections(facts: Facts): Check[] {
  const checks: Check[] = [];
  if (facts.ownSession !== true) {
    const message = "a pooler shares the sessions: statements are not prepared, and waiters poll";
    checks.push(warn("pooler", message, "connect past the pooler if waiting matters"));
  }
  const [used, most] = [Number(facts.connections), Number(facts.maxConnections)];
  const message = `${used} of ${most} are in use`;
  checks.push(
    used > most * CROWDED
      ? warn("connections", message, "raise max_connections, or use fewer")
      : ok("connections", message),
  );
  return checks;
}
