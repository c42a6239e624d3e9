// A private Redis server, and what its own tools say of it.

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { Redis } from "ioredis";
import { writeCertificates } from "../lib/certificates.mjs";
import { freePort } from "../lib/ports.mjs";

const execute = promisify(execFile);

/** Starts `redis-server` without persistence, on a free port if none is given, in a temporary folder, with more settings if given. */
export async function startServer({ port: given, ...settings } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "syncguard-bench-"));
  const port = given ?? (await freePort());
  const options = { port, bind: "127.0.0.1", save: "", appendonly: "no", dir: folder, ...settings };
  const args = Object.entries(options).flatMap(([name, value]) => [`--${name}`, String(value)]);
  const child = spawn("redis-server", args, { stdio: "ignore" });
  const failed = once(child, "error").then(([error]) => Promise.reject(error));
  const kill = () => child.kill("SIGKILL");
  process.on("exit", kill);
  const admin = new Redis(port, { retryStrategy: () => 20, maxRetriesPerRequest: null });
  admin.on("error", () => undefined);
  await Promise.race([admin.ping(), failed]);
  return {
    port,
    admin,
    address: { host: "127.0.0.1", port },
    async stop() {
      admin.disconnect();
      const ended = once(child, "exit");
      kill();
      await ended;
      process.off("exit", kill);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** A server that also speaks TLS; `address` is where, and whom to trust. */
export async function startTlsServer() {
  const folder = mkdtempSync(join(tmpdir(), "syncguard-bench-"));
  const path = (name) => join(folder, name);
  const remove = () => rmSync(folder, { recursive: true, force: true });
  try {
    writeCertificates(folder, "redis.bench");
    const port = await freePort();
    const server = await startServer({
      ...{ "tls-port": port, "tls-auth-clients": "no", "tls-ca-cert-file": path("ca.pem") },
      ...{ "tls-cert-file": path("server.pem"), "tls-key-file": path("server.key") },
    });
    const stop = () => server.stop().finally(remove);
    const tls = { ca: readFileSync(path("ca.pem"), "utf8") };
    return { ...server, address: { host: "127.0.0.1", port, tls }, stop };
  } catch (error) {
    remove();
    throw error;
  }
}

/** Commands per second of redis-benchmark, with 16 of them in one packet; `__rand_int__` stands for 12 digits. */
export async function redisBenchmark(port, requests, keys, command) {
  const args = ["-p", port, "-P", 16, "-c", 16, "-n", requests, "-r", keys, "--csv", ...command];
  const { stdout } = await execute("redis-benchmark", args.map(String));
  // The last line: "the command","per second",…
  const fields =
    stdout
      .trim()
      .split("\n")
      .at(-1)
      .match(/"[^"]*"|[^,]+/g) ?? [];
  const rate = Number(fields.map((field) => field.replaceAll('"', "")).at(-7));
  if (!(rate > 0)) throw new Error(`redis-benchmark: ${stdout}`);
  return rate;
}

/** Microseconds of the server's time per call of a script since `CONFIG RESETSTAT`. */
export async function scriptMicros(admin) {
  const stats = await admin.info("commandstats");
  return Number(/^cmdstat_evalsha:.*usec_per_call=([\d.]+)/m.exec(stats)?.[1] ?? Number.NaN);
}
