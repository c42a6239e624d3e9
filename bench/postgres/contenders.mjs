// Who takes part: each has `pair(index)`, which takes and releases a lock of its own.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import postgres from "postgres";
import { typescriptLibrary } from "../../__test__/postgres/fixtures/typescript-library.mjs";
import { built } from "../lib/built.mjs";
import { pairOf } from "../lib/pair.mjs";
import { USER } from "./server.mjs";

/** As many as pools have if nobody says anything. */
export const CONNECTIONS = 10;

/** Each has tables of its own, so that nobody meets the dead rows of another. */
const tablesOf = (name) => ({ tableName: `${name}_locks`, fenceTableName: `${name}_fences` });

const urlOf = (port) => `postgres://${USER}@127.0.0.1:${port}/postgres?sslmode=disable`;

/** Makes the tables of `name`, by the build in the folder `from`. */
export async function setUp(port, name, from) {
  await built(from, "syncguard/postgres").setupSchema(urlOf(port), tablesOf(name));
}

/** `tables` is the name that they were set up for. */
export const open = {
  /** This package, with releases that wait for the disk or do not. */
  syncguard({ port, tables, from, durableReleases }) {
    const { createPostgresBackend } = built(from, "syncguard/postgres");
    const backend = createPostgresBackend(urlOf(port), {
      ...tablesOf(tables),
      durableReleases,
      poolSize: CONNECTIONS,
    });
    return { pair: pairOf(backend) };
  },

  /** The transactions of the TypeScript library, on postgres.js. */
  canonical({ port, tables }) {
    const sql = postgres(urlOf(port).replace(/\?.*/, ""), { max: CONNECTIONS });
    return { pair: pairOf(typescriptLibrary(sql, tablesOf(tables))) };
  },
};

/** What the statements say by name, as the core's held.rs has it. */
const NOW = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/** What wakes those who wait, as the core's notify.rs has it. */
const HASH = "hashtextextended(lock.key, '{locks}'::regclass::oid::bigint)";
const TELL = `CASE WHEN NOT pg_try_advisory_xact_lock(1937337955, (${HASH} & 63)::integer) THEN pg_notify('syncguard_' || to_hex(${HASH}), '')::text END`;

const sql = new URL("../../crates/syncguard/src/postgres/operations/", import.meta.url);

/**
 * The core's two statements for pgbench: each connection has a key of its own, as the pairs above have. A lock id is
 * 22 digits.
 */
export function pgbenchScript(tables, isDurable) {
  const { tableName, fenceTableName } = tablesOf(tables);
  const statement = (name, params) => {
    let text = readFileSync(fileURLToPath(new URL(`${name}.sql`, sql)), "utf8")
      .replace("{tell}", TELL)
      .replaceAll("{is_live}", "expires_at_ms > {live_after_ms}")
      .replaceAll("{live_after_ms}", "({now_ms} - 1000)")
      .replaceAll("{now_ms}", NOW)
      .replaceAll("{locks}", tableName)
      .replaceAll("{fences}", fenceTableName)
      // What else has a place in it is of options that these pairs do not use.
      .replace(/\{\w+\}/g, "")
      .replace(/^\s*--.*$/gm, "");
    for (const [index, param] of params.entries()) text = text.replaceAll(`$${index + 1}`, param);
    return `${text.replaceAll(/\s+/g, " ").trim()};`;
  };
  // pgbench gives numbers, and what is said in the text; the client's number stands for its key.
  const key = "(:client_id)::bigint::text";
  const lockId =
    "(10000000000 + :client_id::bigint)::text || (10000000000 + :serial::bigint)::text";
  return [
    "\\set serial random(1, 9000000000)",
    statement("acquire", [key, `('fence:' || ${key})`, key, `(${lockId})`, "30000"]),
    statement("release", [`(${lockId})`, isDurable ? "'on'" : "'off'"]),
    "",
  ].join("\n");
}
