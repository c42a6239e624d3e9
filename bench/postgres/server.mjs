// A private PostgreSQL server that waits for its disk, and what pgbench says of it.

import { execFile, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { freePort } from "../lib/ports.mjs";

const execute = promisify(execFile);

export const USER = "bench";

/** PostgreSQL refuses root. */
const OWNER =
  process.getuid?.() === 0 ? ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] : []; // prettier-ignore

/** Starts a server with the settings that it comes with, on a free port, in a temporary folder. */
export async function startServer() {
  const folder = mkdtempSync(join(tmpdir(), "syncguard-bench-"));
  const own = () => {
    if (OWNER.length > 0) execFileSync("chown", ["-R", "postgres:postgres", folder]);
  };
  const data = join(folder, "data");
  const port = await freePort();
  own();
  command(program("initdb"), "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C");
  const settings = [`port=${port}`, "listen_addresses=127.0.0.1", "unix_socket_directories="];
  const args = ["-D", data, ...settings.flatMap((setting) => ["-c", setting])];
  const [name, ...rest] = [...OWNER, program("postgres"), ...args];
  const child = spawn(name, rest, { cwd: "/", stdio: "ignore" });
  // An end at once; the data are not needed any more.
  const kill = () => child.kill("SIGQUIT");
  process.on("exit", kill);
  await ready(child, join(data, "postmaster.pid"));
  return {
    port,
    folder,
    /** A file that pgbench may read. */
    file(fileName, text) {
      const path = join(folder, fileName);
      writeFileSync(path, text);
      own();
      return path;
    },
    async stop() {
      const ended = once(child, "exit");
      kill();
      await ended;
      process.off("exit", kill);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Transactions per second of pgbench with prepared statements, and one connection for each in flight. */
export async function pgbench(port, file, connections, durationMs) {
  const seconds = Math.max(1, Math.round(durationMs / 1_000));
  const args = ["-n", "-M", "prepared", "-c", connections, "-j", Math.min(connections, 2), "-T", seconds, "-f", file, "-h", "127.0.0.1", "-p", port, "-U", USER, "postgres"]; // prettier-ignore
  const { stdout } = await execute(program("pgbench"), args.map(String));
  const rate = Number(/^tps = ([\d.]+)/m.exec(stdout)?.[1]);
  if (!(rate > 0)) throw new Error(`pgbench: ${stdout}`);
  return rate;
}

function command(...words) {
  const [name, ...args] = [...OWNER, ...words];
  execFileSync(name, args, { cwd: "/", stdio: "pipe" });
}

async function ready(child, file) {
  let failure;
  child.on("error", (error) => (failure = error));
  for (let tries = 0; tries < 1_000; tries += 1) {
    if (failure) throw failure;
    if (child.exitCode !== null) throw new Error("postgres ended");
    if (existsSync(file) && readFileSync(file, "utf8").split("\n")[7]?.trim() === "ready") return;
    await sleep(20);
  }
  throw new Error("postgres did not get ready");
}

/** A program of PostgreSQL's; Debian keeps them off the path. */
export function program(name) {
  const folder = execFileSync("pg_config", ["--bindir"], { encoding: "utf8" }).trim();
  return join(folder, name);
}
