/** The client transport: runs statements through a client's own method for queries. */

import type { PostgresStatementCall } from "./addon.js";
import { isPostgresJs } from "./client-settings.js";
import { noted } from "./pool.js";
import type { PostgresClient } from "./types.js";

type Run = (call: PostgresStatementCall) => Promise<unknown>;
type Unsafe = (text: string, params?: readonly unknown[]) => PromiseLike<unknown[]>;
type Query = (text: string, params?: readonly unknown[]) => PromiseLike<{ rows?: unknown[] }>;

/**
 * The function that runs a statement on `client`. Its answer is the columns of the only row, or null, or the error that
 * the server reported.
 */
export function runOnClient(client: PostgresClient): Run {
  const run = runWith(client);
  return async (call) => {
    try {
      return await run(call);
    } catch (error) {
      return serversWord(error);
    }
  };
}

/**
 * The code and severity of a server's error, which show whether the statement may be committed, and its words. Rethrows other
 * errors.
 */
function serversWord(error: unknown): { code: string; severity: string; message: string } {
  const { code, severity, severity_local, message } = (error ?? {}) as Record<string, unknown>;
  // pg gives the severity only in the server's language, and so does postgres.js for errors of a pooler.
  const word = severity ?? severity_local;
  if (typeof code !== "string" || typeof word !== "string") throw error;
  return { code, severity: word, message: typeof message === "string" ? message : "" };
}

function runWith(client: PostgresClient): Run {
  // Called as a method, because clients need `this`, and looked up each time, because tests replace it.
  if (isPostgresJs(client)) {
    const target = client as unknown as { unsafe: Unsafe };
    return async (call) => {
      // Without parameters, several statements are sent as one message and run as one transaction.
      if ("batch" in call) {
        await noted(client, target.unsafe(call.batch));
        return null;
      }
      const pending = target.unsafe(call.sql, call.params) as PromiseLike<unknown[]> & {
        values?: () => PromiseLike<unknown[]>;
      };
      // As arrays, because the client may transform the names of columns.
      const rows = await noted(
        client,
        typeof pending.values === "function" ? pending.values() : pending,
      );
      return columns(rows[0], call.columns);
    };
  }
  const target = client as unknown as { query: Query };
  return async (call) => {
    try {
      if ("batch" in call) {
        await target.query(call.batch);
        return null;
      }
      const { rows = [] } = await target.query(call.sql, call.params);
      return columns(rows[0], call.columns);
    } catch (error) {
      throw isPgs(client) ? withCode(error) : error;
    }
  };
}

function columns(row: unknown, names: readonly string[]): unknown {
  if (row === undefined || row === null) return null;
  const values = Array.isArray(row)
    ? (row as unknown[])
    : names.map((name) => (row as Record<string, unknown>)[name]);
  return values.map((value) => (typeof value === "bigint" ? value.toString() : (value ?? null)));
}

function isPgs(client: object): boolean {
  return "totalCount" in client || "connectionParameters" in client;
}

/**
 * Adds a code to pg's own errors, which are about ended connections, and connections that a pool had not free in time. Errors of the
 * server and the system have one.
 */
function withCode(error: unknown): unknown {
  if (!(error instanceof Error) || error.constructor !== Error || "code" in error) return error;
  const isLate = error.message === "timeout exceeded when trying to connect";
  return isLate
    ? Object.assign(new Error("no connection was free in time"), { code: "CONNECT_TIMEOUT" })
    : Object.assign(new Error("the connection ended"), { code: "CONNECTION_CLOSED" });
}
