/** The client transport: statements through a client's own call for queries. */

import type { PostgresStatementCall } from "./addon.js";
import { isPostgresJs } from "./client-settings.js";
import type { PostgresClient } from "./types.js";

type Run = (call: PostgresStatementCall) => Promise<unknown>;
type Unsafe = (text: string, params?: readonly unknown[]) => PromiseLike<unknown[]>;
type Query = (text: string, params?: readonly unknown[]) => PromiseLike<{ rows?: unknown[] }>;

/**
 * How to run a statement on `client`: the answer is the columns of its only row, or null, or what the server refused it
 * with.
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

/** The server's code and severity, which says whether a statement may have been committed; throws any other error. */
function serversWord(error: unknown): { code: string; severity: string } {
  const { code, severity, severity_local } = (error ?? {}) as Record<string, unknown>;
  // pg gives the word in the server's language alone, and so does postgres.js for what a pooler says.
  const word = severity ?? severity_local;
  if (typeof code !== "string" || typeof word !== "string") throw error;
  return { code, severity: word };
}

function runWith(client: PostgresClient): Run {
  // Called as methods, and looked up each time: clients need `this`, and tests replace them.
  if (isPostgresJs(client)) {
    const target = client as unknown as { unsafe: Unsafe };
    return async (call) => {
      // Without parameters, several statements travel as one message and are one transaction.
      if ("batch" in call) {
        await target.unsafe(call.batch);
        return null;
      }
      const pending = target.unsafe(call.sql, call.params) as PromiseLike<unknown[]> & {
        values?: () => PromiseLike<unknown[]>;
      };
      // As lists: the names of columns may be transformed.
      const rows = await (typeof pending.values === "function" ? pending.values() : pending);
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

/** pg gives a code to what the server and the system say. What it says itself is of connections that ended. */
function withCode(error: unknown): unknown {
  if (!(error instanceof Error) || error.constructor !== Error || "code" in error) return error;
  return Object.assign(new Error("the connection ended"), { code: "CONNECTION_CLOSED" });
}
