// Who takes part: each has `pair(index)`, which takes and releases a lock of its own.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import postgres from "postgres";
import { typescriptLibrary } from "../../__test__/postgres/fixtures/typescript-library.mjs";
import { pairOf } from "../lib/pair.mjs";
import { USER } from "./server.mjs";

/** As many as pools have if nobody says anything. */
export const CONNECTIONS = 10;

const TABLES = {
  durable: { tableName: "durable_locks", fenceTableName: "durable_fences" },
  relaxed: { tableName: "relaxed_locks", fenceTableName: "relaxed_fences" },
  canonical: { tableName: "canonical_locks", fenceTableName: "canonical_fences" },
  pgbench: { tableName: "pgbench_locks", fenceTableName: "pgbench_fences" },
};

const urlOf = (port) => `postgres://${USER}@127.0.0.1:${port}/postgres?sslmode=disable`;

/** Makes the tables of all. */
export async function setUp(port) {
  const { setupSchema } = await import("syncguard/postgres");
  for (const tables of Object.values(TABLES)) await setupSchema(urlOf(port), tables);
}

/** This package, with releases that wait for the disk or do not. */
export async function ours(port, kind) {
  const { createPostgresBackend } = await import("syncguard/postgres");
  const backend = createPostgresBackend(urlOf(port), {
    ...TABLES[kind],
    durableReleases: kind === "durable",
    poolSize: CONNECTIONS,
  });
  return { pair: pairOf(backend), close: () => backend.close() };
}

/** The transactions of the TypeScript library, on postgres.js. */
export function canonical(port) {
  const sql = postgres(urlOf(port).replace(/\?.*/, ""), { max: CONNECTIONS });
  return { pair: pairOf(typescriptLibrary(sql, TABLES.canonical)), close: () => sql.end() };
}

const sql = new URL("../../crates/syncguard/src/postgres/", import.meta.url);

/**
 * The core's two statements for pgbench: each connection has a key of its own, as the pairs above have. A lock id is
 * 22 digits.
 */
export function pgbenchScript(isDurable) {
  const { tableName, fenceTableName } = TABLES.pgbench;
  const statement = (name, params) => {
    let text = readFileSync(fileURLToPath(new URL(`${name}.sql`, sql)), "utf8")
      .replace(/^\s*--.*$/gm, "")
      .replace(/\{owner_\w+\}/g, "")
      .replaceAll("{locks}", tableName)
      .replaceAll("{fences}", fenceTableName);
    for (const [index, param] of params.entries()) text = text.replaceAll(`$${index + 1}`, param);
    return `${text.replaceAll(/\s+/g, " ").trim()};`;
  };
  // pgbench gives numbers, and what is said in the text; the client's number stands for its key.
  const key = "(:client_id)::bigint::text";
  const lockId =
    "(10000000000 + :client_id::bigint)::text || (10000000000 + :serial::bigint)::text";
  return [
    "\\set serial random(1, 9000000000)",
    statement("acquire", [key, `('fence:' || ${key})`, key, `(${lockId})`, "30000", "1000"]),
    statement("release", [`(${lockId})`, "1000", isDurable ? "'on'" : "'off'"]),
    "",
  ].join("\n");
}
