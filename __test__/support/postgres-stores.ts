/** PostgreSQL as the behaviour suites see it. */

import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Pool } from "pg";
import postgres from "postgres";
import type { SyncGuardBackend } from "syncguard";
import {
  createPostgresBackend,
  type PostgresBackendOptions,
  type PostgresClient,
  type PostgresConnectionOptions,
  setupSchema,
} from "syncguard/postgres";
import type { Store } from "./backends";
import { PATIENT } from "./in-time";
import { PASSWORD, type PostgresServer, startPgBouncer, startPostgres, USER } from "./postgres";

/** Over native connections from a URL: that of POSTGRES_URL if it is set. */
export async function postgresByUrl(): Promise<Store> {
  const url = process.env.POSTGRES_URL ?? (await server()).url;
  return await storeOn(url);
}

/** Over a postgres.js instance, on either transport. */
export async function postgresByPostgresJs(transport: "native" | "client"): Promise<Store> {
  const { url } = await server();
  const sql = postgres(withoutQuery(url), { onnotice: () => undefined });
  return await storeOn(sql, { transport }, () => sql.end());
}

/** Through a pg pool. */
export async function postgresThroughPg(): Promise<Store> {
  const { url } = await server();
  const pool = new Pool({ connectionString: withoutQuery(url) });
  return await storeOn(pool, { transport: "client" }, () => pool.end());
}

/** Over TLS with everything checked, and SCRAM. */
export async function postgresOverTls(): Promise<Store> {
  const { port, folder } = await server();
  return await storeOn({
    host: "127.0.0.1",
    port,
    user: USER,
    password: PASSWORD,
    database: "postgres",
    ssl: { ca: readFileSync(join(folder, "ca.pem")) },
  });
}

/** Over a unix socket. */
export async function postgresOverSocket(): Promise<Store> {
  return await storeOn((await server()).socketUrl);
}

/** Behind PgBouncer, which gives each transaction another session. */
export async function postgresBehindPgBouncer(): Promise<Store> {
  const pooler = await startPgBouncer(await server());
  return await storeOn(pooler.url, {}, pooler.stop);
}

let started: Promise<PostgresServer> | undefined;

/** One server for all stores of a test file; it ends with the file's process. */
function server(): Promise<PostgresServer> {
  return (started ??= startPostgres());
}

async function storeOn(
  at: string | PostgresClient | PostgresConnectionOptions,
  fixed: PostgresBackendOptions = {},
  stop: () => Promise<unknown> = () => Promise.resolve(),
): Promise<Store> {
  const name = randomBytes(6).toString("hex");
  const tables = { tableName: `locks_${name}`, fenceTableName: `fences_${name}` };
  try {
    await setupSchema(at, { ...tables, ...fixed });
  } catch (error) {
    await stop();
    throw error;
  }
  const opened: SyncGuardBackend[] = [];
  return {
    connect: (options) => {
      const backend = createPostgresBackend(at, { ...PATIENT, ...tables, ...fixed, ...options });
      opened.push(backend);
      return backend;
    },
    close: async () => {
      await Promise.all(opened.map((backend) => backend.close()));
      await stop();
    },
  };
}

function withoutQuery(url: string): string {
  return url.slice(0, url.indexOf("?"));
}
