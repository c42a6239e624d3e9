/** The servers and clients of PostgreSQL that locks are tried with. */

import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Pool } from "pg";
import postgres from "postgres";
import { expect } from "vitest";
import {
  createPostgresBackend,
  type PostgresClient,
  type PostgresTransaction,
  setupSchema,
} from "syncguard/postgres";
// @ts-expect-error a module of the scripts, in plain JavaScript
import { pgliteServer, postgresFolder } from "../../scripts/lib/matrix.mjs";
import { lockError } from "../support/errors";
import { freePort } from "../support/ports";
import { startPostgres } from "../support/postgres";
import { isRoot, startSupervised } from "../support/supervised";
import { newKey } from "../support/suite";
import { temporaryFolder } from "../support/temp";
import type { Stage } from "./operations";

export type PostgresStage = { readonly url: string; readonly stop: () => Promise<void> };

export type PostgresServerRow = {
  readonly name: string;
  readonly version: string;
  /** How many connections a client may have, each server being one client's if it is a single one. */
  readonly connections: number;
  readonly start: () => Promise<PostgresStage>;
};

export const postgresServers: readonly PostgresServerRow[] = [
  ...(["13.23", "15.18", "18.4"] as const).map((version) => ({
    name: "PostgreSQL",
    version,
    connections: 4,
    start: async () => {
      const major = version.split(".")[0];
      return await startPostgres([], (postgresFolder as (major?: string) => string)(major));
    },
  })),
  { name: "PGlite over its socket", version: "0.5.14", connections: 1, start: startPglite },
];

/** A PGlite in memory, behind its socket server as that is without options: for one connection at a time. */
async function startPglite(): Promise<PostgresStage> {
  const folder = temporaryFolder();
  const port = await freePort();
  const log = join(folder.path, "log");
  const command = [process.execPath, pgliteServer as string, "--db=memory://", `--port=${port}`];
  const isReady = () => readFileSync(log, "utf8").includes("listening on");
  const user = isRoot ? "root" : undefined;
  try {
    const { stop } = await startSupervised(command, "KILL", log, isReady, user);
    return {
      url: `postgres://postgres:postgres@127.0.0.1:${port}/postgres?sslmode=disable`,
      stop: async () => {
        await stop();
        folder.remove();
      },
    };
  } catch (error) {
    folder.remove();
    throw error;
  }
}

/** Fails if the server is not the one that is meant. */
export async function checkVersion({ url }: PostgresStage, row: PostgresServerRow): Promise<void> {
  const sql = postgres(withoutQuery(url), { max: 1 });
  try {
    const [first] = await sql`SELECT version()`;
    const name = row.name.split(" ")[0];
    expect(first?.version).toMatch(new RegExp(`\\b${name} ${row.version.replace(".", "\\.")}\\b`));
  } finally {
    await sql.end();
  }
}

/** What a transaction needs of a client. */
type Opened = {
  readonly at: PostgresClient | string;
  readonly transact: (
    work: (tx: PostgresTransaction, write: Write) => Promise<void>,
  ) => Promise<void>;
  readonly end: () => Promise<unknown>;
};
type Write = (text: string) => Promise<unknown>;

export type PostgresClientRow = {
  readonly name: string;
  readonly version: string;
  readonly ways: readonly ("native" | "client")[];
  readonly open: (url: string, connections: number) => Opened;
};

const BOTH = ["native", "client"] as const;

export const postgresClients: readonly PostgresClientRow[] = [
  {
    name: "PostgreSQL by a URL",
    version: "–",
    ways: ["native"],
    open: (url, connections) => ({ ...ofPostgresJs(url, connections), at: url }),
  },
  { name: "postgres.js", version: "3", ways: BOTH, open: ofPostgresJs },
  { name: "pg", version: "8", ways: BOTH, open: ofPg },
];

function ofPostgresJs(url: string, max: number): Opened {
  const sql = postgres(withoutQuery(url), { onnotice: () => undefined, max });
  return {
    at: sql,
    transact: async (work) => {
      await sql.begin(async (tx) => {
        await work(tx, (text) => tx.unsafe(text));
      });
    },
    end: () => sql.end(),
  };
}

function ofPg(url: string, max: number): Opened {
  const pool = new Pool({ connectionString: withoutQuery(url), max });
  // Those that are idle when the server ends.
  pool.on("error", () => undefined);
  return {
    at: pool,
    transact: async (work) => {
      const client = await pool.connect();
      try {
        await client.query("BEGIN");
        await work(client, (text) => client.query(text));
        await client.query("COMMIT");
      } catch (error) {
        await client.query("ROLLBACK");
        throw error;
      } finally {
        client.release();
      }
    },
    end: () => pool.end(),
  };
}

/** The store as it is reached through a client, on one of the transports, with tables of its own. */
export async function openPostgres(
  { url }: PostgresStage,
  { connections }: PostgresServerRow,
  { open }: PostgresClientRow,
  transport: "native" | "client",
): Promise<Stage> {
  const { at, transact, end } = open(url, connections);
  const name = randomBytes(6).toString("hex");
  const tables = { tableName: `locks_${name}`, fenceTableName: `fences_${name}` };
  const options = transport === "client" ? ({ ...tables, transport } as const) : tables;
  await setupSchema(at, options);
  // Connections are shared by the backends on a client, and the server has only so many.
  const opened = [0, 1].map(() => {
    const backend = createPostgresBackend(at, { ...options, poolSize: 4, onLost: () => undefined });
    expect(backend.transport?.way).toBe(transport);
    return backend;
  });
  let turn = 0;
  const connect = () => opened[(turn += 1) % 2]!;
  const written = `written_${name}`;
  await transact(async (_, run) => {
    await run(`CREATE TABLE ${written} (n int)`);
  });
  return {
    connect,
    isTold: transport === "native",
    whileHeld: async () => {
      const held = await connect().lock(newKey());
      const write = () =>
        transact(async (tx, run) => {
          await held.guard(tx);
          await run(`INSERT INTO ${written} VALUES (1)`);
        });
      await write();
      await connect().release({ lockId: held.lockId });
      expect((await lockError(write())).code).toBe("LockLost");
      await transact(async (_, run) => {
        const answer = (await run(`SELECT n FROM ${written}`)) as { rows?: unknown[] };
        expect(answer.rows ?? answer).toHaveLength(1);
      });
    },
    close: async () => {
      await Promise.all(opened.map((backend) => backend.close()));
      await end();
    },
  };
}

function withoutQuery(url: string): string {
  return url.slice(0, url.indexOf("?"));
}
