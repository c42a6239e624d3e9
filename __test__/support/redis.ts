/** Private Redis servers: each on a free port, in a temporary folder, and ended with its tests. */

import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, existsSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { Redis } from "ioredis";
import type { RedisConnectionOptions } from "syncguard/redis";
// @ts-expect-error a module of the scripts, in plain JavaScript
import { redis62 } from "../../scripts/lib/wheels.mjs";
import { writeCertificates } from "./certificates";
import { freePort } from "./ports";
import { temporaryFolder } from "./temp";
import { until } from "./until";

export type RedisServer = {
  readonly port: number;
  readonly url: string;
  /** The server's folder. */
  readonly folder: string;
  /** A client for tests, apart from the backends'. It may do everything. */
  readonly admin: Redis;
  /** Ends it as a crash would. */
  kill: () => Promise<void>;
  /** Starts it again, on the same port, empty. */
  start: () => Promise<void>;
  /** Ends it for good. */
  stop: () => Promise<void>;
};

type Settings = {
  /** Lines of configuration. `{dir}` stands for the server's folder. */
  lines?: readonly string[];
  /** Which option takes the port; the server listens for nothing else but a socket. */
  portOption?: "port" | "tls-port";
  mode?: "server" | "sentinel";
  /** The server's program. Default: the one on the PATH. */
  program?: string;
};

// Whatever happens in this process, no server outlives it: not even if it is killed, where the system can see to that.
const DIES_WITH_US = process.platform === "linux" ? ["setpriv", "--pdeathsig", "KILL"] : [];
const running = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of running) child.kill("SIGKILL");
});

/** Starts a server without persistence. */
export async function startRedis(settings: Settings = {}): Promise<RedisServer> {
  const { lines = [], portOption = "port", mode = "server" } = settings;
  const { program = `redis-${mode}` } = settings;
  const folder = temporaryFolder();
  const port = await freePort();
  const socket = join(folder.path, "redis.sock");
  const file = join(folder.path, "redis.conf");
  const all = [
    "port 0",
    `${portOption} ${port}`,
    "bind 127.0.0.1",
    `dir ${folder.path}`,
    `unixsocket ${socket}`,
    ...(mode === "server" ? ['save ""', "appendonly no", "repl-diskless-sync-delay 0"] : []),
    ...lines,
  ];
  const text = all.map((line) => `${line.replaceAll("{dir}", folder.path)}\n`).join("");

  let child: ChildProcess | undefined;
  const start = async (): Promise<void> => {
    // A Sentinel rewrites its file.
    writeFileSync(file, text);
    child = await launch(program, file, join(folder.path, "log"), port);
  };
  const kill = async (): Promise<void> => {
    if (child !== undefined) await end(child);
    child = undefined;
  };
  const isGuarded = lines.some((line) => line.startsWith("user admin "));
  const admin = new Redis({
    path: socket,
    lazyConnect: true,
    retryStrategy: () => 20,
    maxRetriesPerRequest: null,
    ...(isGuarded ? { username: "admin", password: "admin" } : {}),
  });
  admin.on("error", () => undefined);
  await start();
  return {
    port,
    url: `redis://127.0.0.1:${port}`,
    folder: folder.path,
    admin,
    kill,
    start,
    stop: async () => {
      admin.disconnect();
      await kill();
      folder.remove();
    },
  };
}

/** The server that REDIS_URL names, else a private one. */
export async function plainRedis(): Promise<Pick<RedisServer, "url" | "stop">> {
  const url = process.env.REDIS_URL;
  if (!url) return await startRedis();
  return { url, stop: () => Promise.resolve() };
}

/** A server of the oldest version that is supported. */
export async function startRedis62(): Promise<RedisServer> {
  const program = redis62 as string;
  if (!existsSync(program)) throw new Error("Redis 6.2 is missing: `npm test` gets it");
  return await startRedis({ program });
}

/** Users: one who may do everything, and one who may do what locks need. */
const USERS = [
  "user admin on >admin ~* &* +@all",
  "user default off",
  "user locks on >s3cret: ~syncguard:* &syncguard:* -@all +eval +evalsha +get +set +del +time +ping +publish +subscribe +unsubscribe +client|id +client|setname +info",
];

/** A server that speaks TLS only, asks for client certificates, and lets in whom it knows; with more lines if given. */
export async function startTlsRedis(
  lines: readonly string[] = [],
): Promise<RedisServer & { readonly connection: RedisConnectionOptions }> {
  const certificates = temporaryFolder();
  writeCertificates(certificates.path, "redis.test");
  const path = (name: string): string => join(certificates.path, name);
  const server = await startRedis({
    portOption: "tls-port",
    lines: [
      `tls-cert-file ${path("server.pem")}`,
      `tls-key-file ${path("server.key")}`,
      `tls-ca-cert-file ${path("ca.pem")}`,
      "tls-auth-clients yes",
      ...USERS,
      ...lines,
    ],
  });
  const read = (name: string): string => readFileSync(path(name), "utf8");
  const { port } = server;
  const tls = { ca: read("ca.pem"), cert: read("client.pem"), key: read("client.key") };
  return {
    ...server,
    connection: { host: "127.0.0.1", port, username: "locks", password: "s3cret:", tls },
    stop: async () => {
      await server.stop();
      certificates.remove();
    },
  };
}

export type SentinelSet = {
  readonly primary: RedisServer;
  readonly replica: RedisServer;
  readonly sentinel: RedisServer;
  readonly url: string;
  stop: () => Promise<void>;
};

/** A primary, its replica, and a Sentinel that knows them as `main`. */
export async function startSentinelSet(): Promise<SentinelSet> {
  const primary = await startRedis();
  const replica = await startRedis({ lines: [`replicaof 127.0.0.1 ${primary.port}`] });
  const sentinel = await startRedis({
    mode: "sentinel",
    lines: [
      `sentinel monitor main 127.0.0.1 ${primary.port} 1`,
      "sentinel down-after-milliseconds main 500",
      "sentinel failover-timeout main 3000",
    ],
  });
  const stop = async (): Promise<void> => {
    await Promise.all([sentinel.stop(), replica.stop(), primary.stop()]);
  };
  try {
    await until(async () => (await replica.admin.info()).includes("master_link_status:up"));
    await until(async () => {
      const known = (await sentinel.admin.call("sentinel", "replicas", "main")) as unknown[];
      return known.length === 1;
    }, 20_000);
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    primary,
    replica,
    sentinel,
    url: `redis+sentinel://127.0.0.1:${sentinel.port}/main`,
    stop,
  };
}

async function launch(
  program: string,
  file: string,
  logFile: string,
  port: number,
): Promise<ChildProcess> {
  const log = openSync(logFile, "a");
  const [command, ...args] = [...DIES_WITH_US, program, file];
  const child = spawn(command, args, { stdio: ["ignore", log, log] });
  closeSync(log);
  running.add(child);
  let failure: Error | undefined;
  child.on("error", (error) => (failure = error));
  child.on("exit", () => {
    running.delete(child);
    failure ??= new Error(`${program} ended: ${readFileSync(logFile, "utf8")}`);
  });
  await until(async () => {
    if (failure !== undefined) throw failure;
    return await listens(port);
  }, 20_000);
  return child;
}

async function listens(port: number): Promise<boolean> {
  return await new Promise((done) => {
    const socket = connect(port, "127.0.0.1");
    const settle = (answer: boolean): void => {
      socket.destroy();
      done(answer);
    };
    socket.on("connect", () => {
      settle(true);
    });
    socket.on("error", () => {
      settle(false);
    });
  });
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  await new Promise((ended) => {
    child.once("exit", ended);
    child.kill("SIGKILL");
  });
}
