// A busy host: loops of the idle class (SCHED_IDLE) beside a run, one on each core. They take only what nobody else wants,
// but no core goes to sleep, so that none has to be woken: as on a host that has other work.

import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { which } from "../../scripts/lib/run.mjs";

/** Starts the loops. Resolves to what ends them; they also end with this process, even if it is killed. */
export async function keepAwake() {
  if (process.platform !== "linux") throw new Error("--busy needs the idle class of Linux");
  for (const name of ["setpriv", "taskset", "chrt"]) {
    if (which(name) === undefined) throw new Error(`--busy needs ${name}, of util-linux`);
  }
  const loops = cores().map((core) => {
    // Each on a core of its own: the scheduler may leave two on one while the other core sleeps.
    const args = `--pdeathsig KILL taskset -c ${core} chrt -i 0 sh -c`.split(" ");
    return spawn("setpriv", [...args, "while :; do :; done"], { stdio: ["ignore", "ignore", "inherit"] }); // prettier-ignore
  });
  const end = () => {
    for (const loop of loops) loop.kill("SIGKILL");
  };
  process.on("exit", end);
  await sleep(200);
  if (loops.some(({ exitCode }) => exitCode !== null)) {
    end();
    throw new Error("--busy: a loop of the idle class did not run");
  }
  return end;
}

/**
 * What stands in the way of a fair run. With autogroups, the loops are of the idle class only among the processes of this
 * session. To all others, as the threads of the kernel that write to the disk and those of PostgreSQL, which has a session
 * for each of its processes, the session counts as a whole: they wait for the loops until the next tick.
 */
export function complaint() {
  const path = "/proc/sys/kernel/sched_autogroup_enabled";
  if (!existsSync(path) || readFileSync(path, "utf8").trim() === "0") return undefined;
  return "with autogroups, the loops hold up the disk and PostgreSQL: sysctl -w kernel.sched_autogroup_enabled=0, or do not keep this"; // prettier-ignore
}

/** The cores that this process may use. */
function cores() {
  const status = readFileSync("/proc/self/status", "utf8");
  const ranges = /^Cpus_allowed_list:\s*(.*)$/m.exec(status)[1].split(",");
  return ranges.flatMap((range) => {
    const [first, last = first] = range.split("-").map(Number);
    return Array.from({ length: last - first + 1 }, (_, index) => first + index);
  });
}
