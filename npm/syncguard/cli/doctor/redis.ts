import { type Check, type Facts, fail, ok, warn } from "./check.js";

const OLDEST: readonly [number, number] = [6, 2];

/** How full the memory may be. */
const CROWDED = 0.9;

/** Judges how one server is set up. */
export function judgeRedis(facts: Facts): Check[] {
  if (facts.version === undefined) {
    const message = "INFO may not be called: nothing can be said of the server's settings";
    const fix = "ACL SETUSER … +info, at least for the doctor";
    return [...rights(facts), ...declaredKeys(facts), warn("settings", message, fix)];
  }
  return [
    ...rights(facts),
    ...declaredKeys(facts),
    version(facts),
    role(facts),
    ...eviction(facts),
    ...persistence(facts),
    ...replication(facts),
  ];
}

/** What the rights that scripts may lack are needed for. */
const RIGHTS: readonly [names: readonly string[], need: string, isNeeded: boolean][] = [
  [["time"], "every script calls it", true],
  [["get"], "every script calls it", true],
  [["set"], "the scripts that acquire and extend call it", true],
  [["del"], "the script that releases calls it", true],
  [["scan"], "the script that lists locks calls it", false],
  [["publish"], "the script that releases calls it, to wake those who wait", false],
  [["zadd", "zrem", "zrevrange", "zremrangebyscore", "pexpire"], "no lock can be shared", false],
];

function rights({ missingRights }: Facts): Check[] {
  const missing = String(missingRights ?? "").split(" ");
  return RIGHTS.flatMap(([names, need, isNeeded]) => {
    const lacking = names.filter((name) => missing.includes(name));
    if (lacking.length === 0) return [];
    const message = `the user may not call ${lacking.join(", ").toUpperCase()}: ${need}`;
    const given = lacking.map((name) => `+${name}`).join(" ");
    const channels = lacking.includes("publish") ? ", and the channels with the keys' prefix" : "";
    return [(isNeeded ? fail : warn)("rights", message, `ACL SETUSER … ${given}${channels}`)];
  });
}

/** Whether a lock that is taken would stay until its time is over. */
export function mayNotRelease({ missingRights }: Facts): boolean {
  return String(missingRights ?? "")
    .split(" ")
    .includes("del");
}

function declaredKeys({ undeclaredKeys }: Facts): Check[] {
  if (undeclaredKeys === undefined) return [];
  const message =
    "scripts may touch only the keys that calls declare: locks work, cannot be listed, and take a call more where only their lock id is known";
  return [
    warn("scripts", message, "start Dragonfly with --default_lua_flags=allow-undeclared-keys"),
  ];
}

function version({ version, valkeyVersion, mode }: Facts): Check {
  const name = "version";
  const [major = 0, minor = 0] = String(version).split(".").map(Number);
  const shown =
    valkeyVersion === undefined ? `Redis ${version}, ${mode}` : `Valkey ${valkeyVersion}, ${mode}`;
  const isOld = major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1]);
  if (!isOld) return ok(name, shown);
  return fail(name, shown, `upgrade: ${OLDEST.join(".")} is the oldest version that is supported`);
}

function role({ role, loading }: Facts): Check {
  const name = "writable";
  if (loading === 1) return fail(name, "the server is loading its data", "wait until it has");
  if (role === "master") return ok(name, "a primary");
  return fail(name, "this server is a replica, and takes no locks", "connect to the primary");
}

function eviction(facts: Facts): Check[] {
  const { maxmemory, maxmemoryPolicy, usedMemory, evictedKeys } = facts;
  const name = "eviction";
  const isLimited = Number(maxmemory) > 0;
  const fix = "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf";
  const checks: Check[] = [];
  if (maxmemoryPolicy === "noeviction") {
    checks.push(ok(name, "noeviction"));
  } else if (isLimited) {
    const far = Number(evictedKeys) > 0 ? `; ${evictedKeys} keys have been removed so far` : "";
    const message = `${maxmemoryPolicy}: when memory runs out, locks are removed${far}`;
    checks.push(fail(name, message, fix));
  } else {
    const message = `${maxmemoryPolicy}, without effect while maxmemory is 0`;
    checks.push(warn(name, message, fix));
  }
  if (isLimited && Number(usedMemory) > Number(maxmemory) * CROWDED) {
    const message = `${Math.round((Number(usedMemory) / Number(maxmemory)) * 100)} % of maxmemory is used`;
    checks.push(warn("memory", message, "raise maxmemory: without memory no lock can be taken"));
  }
  return checks;
}

function persistence({ aofEnabled, aofLastWriteStatus, rdbLastSaveStatus }: Facts): Check[] {
  const name = "persistence";
  for (const [what, status] of [
    ["append-only file", aofLastWriteStatus],
    ["snapshot", rdbLastSaveStatus],
  ]) {
    if (status !== undefined && status !== "ok") {
      const fix = "see the server's log: the disk may be full";
      return [fail(name, `the last write of the ${what} has failed: ${status}`, fix)];
    }
  }
  if (aofEnabled === 1) {
    const message = "appendonly is on; only with appendfsync always does a crash lose nothing";
    return [ok(name, message)];
  }
  const message = "appendonly is off: a crash loses the locks since the last snapshot";
  return [warn(name, message, "appendonly yes and appendfsync always, or check fences elsewhere")];
}

function replication({ replicas, goodReplicas }: Facts): Check[] {
  const name = "replication";
  if (Number(replicas) === 0) return [ok(name, "no replicas, and so no failover")];
  if (goodReplicas !== undefined) {
    return [ok(name, `${replicas} replicas, and min-replicas-to-write is set`)];
  }
  const message = `${replicas} replicas: a failover may lose the last locks`;
  const fix =
    "the option replicas: 1, or min-replicas-to-write 1 and min-replicas-max-lag 10 for a smaller loss";
  return [warn(name, message, fix)];
}
