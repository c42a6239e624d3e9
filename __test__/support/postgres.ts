/** Private PostgreSQL servers: each in a temporary folder, on a free port of 127.0.0.1, ended with its tests. */

import { execFileSync } from "node:child_process";
import { cpSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { writeCertificates } from "./certificates";
import { freePort } from "./ports";
import { asOwner, isRoot, owner, startSupervised, type Supervised } from "./supervised";
import { temporaryFolder } from "./temp";

/** The superuser; over TCP it must know the password. */
export const USER = "locker";
export const PASSWORD = "a pass:word/with@signs";

/** Everybody by SCRAM over TCP, but for a role that TLS is enforced for. */
const HBA = `local all all trust
hostnossl all encrypted 127.0.0.1/32 reject
host all all 127.0.0.1/32 scram-sha-256
`;

export type PostgresServer = {
  readonly port: number;
  /** The folder of the unix socket, and of ca.pem. */
  readonly folder: string;
  /** Over TCP, with the password, not encrypted. */
  readonly url: string;
  /** The same over the unix socket. */
  readonly socketUrl: string;
  /** Ends it as a crash would. */
  kill: () => Promise<void>;
  /** Starts it again. */
  start: () => Promise<void>;
  /** Ends it for good. */
  stop: () => Promise<void>;
};

// Whatever happens in this process, no folder outlives it.
const folders = new Set<string>();
process.on("exit", () => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

/**
 * Starts a server that does not wait for the disk.
 *
 * @param programs - a folder with another version than the one that is installed
 */
export async function startPostgres(
  settings: readonly string[] = [],
  programs?: string,
): Promise<PostgresServer> {
  const folder = ownFolder();
  const data = join(folder.path, "data");
  const own = join(folder.path, "programs");
  const binary = (name: string): string =>
    programs === undefined ? program(name) : join(own, "bin", name);
  try {
    // The user who runs them may not be allowed to look into the folder where they are.
    if (programs !== undefined) cpSync(programs, own, { recursive: true, verbatimSymlinks: true });
    const password = join(folder.path, "password");
    writeFileSync(password, PASSWORD);
    writeCertificates(folder.path, "localhost");
    giveAway(folder.path);
    runAsOwner(
      binary("initdb"),
      ...["-D", data, "-U", USER, "-A", "scram-sha-256", "-E", "UTF8"],
      ...["--locale=C", "--no-sync", `--pwfile=${password}`],
    );
    writeFileSync(join(data, "pg_hba.conf"), HBA);
  } catch (error) {
    folder.remove();
    throw error;
  }
  const port = await freePort();
  const all = [
    `port=${port}`,
    "listen_addresses=127.0.0.1",
    `unix_socket_directories=${folder.path}`,
    "fsync=off",
    "max_connections=200",
    "ssl=on",
    `ssl_cert_file=${folder.path}/server.pem`,
    `ssl_key_file=${folder.path}/server.key`,
    `ssl_ca_file=${folder.path}/ca.pem`,
    ...settings,
  ];
  const command = [binary("postgres"), "-D", data, ...all.flatMap((setting) => ["-c", setting])];
  const status = join(data, "postmaster.pid");
  let server: Supervised | undefined;
  const start = async (): Promise<void> => {
    server = await startSupervised(command, "QUIT", join(folder.path, "log"), () => {
      return existsSync(status) && readFileSync(status, "utf8").split("\n")[7]?.trim() === "ready";
    });
  };
  const kill = async (): Promise<void> => {
    await server?.stop();
    server = undefined;
    // What a crash leaves would look like a server that is ready.
    rmSync(status, { force: true });
  };
  const stop = async (): Promise<void> => {
    await kill();
    folder.remove();
    folders.delete(folder.path);
  };
  try {
    await start();
  } catch (error) {
    await stop();
    throw error;
  }
  const login = `${USER}:${encodeURIComponent(PASSWORD)}`;
  return {
    port,
    folder: folder.path,
    url: `postgres://${login}@127.0.0.1:${port}/postgres?sslmode=disable`,
    socketUrl: `postgres://${USER}@${encodeURIComponent(folder.path)}:${port}/postgres`,
    kill,
    start,
    stop,
  };
}

export type Pooler = { readonly url: string; stop: () => Promise<void> };

/** Starts a PgBouncer in transaction mode before `server`. */
export async function startPgBouncer(server: PostgresServer): Promise<Pooler> {
  const folder = ownFolder();
  const port = await freePort();
  const log = join(folder.path, "log");
  writeFileSync(join(folder.path, "users"), `"${USER}" ""\n`);
  writeFileSync(
    join(folder.path, "settings.ini"),
    `[databases]
* = host=${server.folder} port=${server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = trust
auth_file = ${folder.path}/users
pool_mode = transaction
default_pool_size = 8
max_client_conn = 500
logfile = ${log}
`,
  );
  giveAway(folder.path);
  const remove = (): void => {
    folder.remove();
    folders.delete(folder.path);
  };
  const output = join(folder.path, "output");
  try {
    const pooler = await startSupervised(
      [program("pgbouncer"), join(folder.path, "settings.ini")],
      "TERM",
      output,
      () => existsSync(log) && readFileSync(log, "utf8").includes("process up"),
    );
    return {
      url: `postgres://${USER}@127.0.0.1:${port}/postgres?sslmode=disable`,
      stop: async () => {
        await pooler.stop();
        remove();
      },
    };
  } catch (error) {
    remove();
    throw error;
  }
}

function ownFolder(): { path: string; remove: () => void } {
  const folder = temporaryFolder();
  folders.add(folder.path);
  return folder;
}

function giveAway(path: string): void {
  if (isRoot) execFileSync("chown", ["-R", `${owner}:${owner}`, path]);
}

function runAsOwner(...command: string[]): void {
  const [name, ...args] = asOwner(command);
  execFileSync(name as string, args, { cwd: "/", stdio: "pipe" });
}

/** A program of PostgreSQL's; Debian keeps them, and PgBouncer, off the usual path. */
function program(name: string): string {
  const bin = execFileSync("pg_config", ["--bindir"], { encoding: "utf8" }).trim();
  const found = [bin, "/usr/sbin", "/usr/bin", "/usr/local/bin"]
    .map((folder) => join(folder, name))
    .find((path) => existsSync(path));
  if (found === undefined) throw new Error(`${name} is not installed`);
  return found;
}
