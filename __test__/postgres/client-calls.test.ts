/** Backends that drive a client of the user's: what they ask of it, and what becomes of its answers. */

import { inspect } from "node:util";
import { Client, Pool } from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import type { LockErrorCode } from "syncguard";
import { createPostgresBackend, type PostgresClient, setupSchema } from "syncguard/postgres";
import { lockError } from "../support/errors";
import { type PostgresServer, startPostgres, USER } from "../support/postgres";
import { newKey, take } from "../support/suite";

const LOCK_ID = "0123456789abcdefABCDEF";
const GRANTED = { outcome: "acquired", fence: "000000000000007", expires_at_ms: "1700000000000" };

/** Both kinds of clients that answer with `rows`. */
function mocks(rows: () => unknown[] | Promise<unknown[]>) {
  const unsafe = vi.fn(async (_text: string, _params?: unknown[]) => await rows());
  const query = vi.fn(async (_text: string, _params?: unknown[]) => ({ rows: await rows() }));
  return [
    { client: { unsafe }, calls: unsafe.mock.calls },
    { client: { query }, calls: query.mock.calls },
  ] as const;
}

describe("a client that is not known", () => {
  test("gets one statement with texts as parameters for each operation", async () => {
    for (const { client, calls } of mocks(() => [GRANTED])) {
      const backend = createPostgresBackend(client);
      const held = await backend.acquire({ key: "a'b", ttlMs: 5_000 });
      expect(held).toMatchObject({
        ok: true,
        fence: "000000000000007",
        expiresAtMs: 1_700_000_000_000,
      });
      expect(calls).toHaveLength(1);
      const [text, params] = calls[0] as [string, string[]];
      expect(text).toContain("pg_advisory_xact_lock(hashtext($1))");
      expect(text).not.toContain("a'b");
      const lockId = held.ok ? held.lockId : "";
      const [label, ...others] = params.slice(5);
      expect(params.slice(0, 5)).toEqual(["a'b", "fence:a'b", "a'b", lockId, "5000"]);
      expect(label).toMatch(new RegExp(`^${lockId}:.+:${process.pid}$`));
      expect(others).toEqual([]);
    }
  });

  test("may give numbers, big integers and lists", async () => {
    const now = Date.now();
    const lock = JSON.stringify({
      ...{ key: "key", user_key: "key", lock_id: LOCK_ID, fence: "000000000000001", owner: null },
      ...{ expires_at_ms: now + 9_000, acquired_at_ms: now - 5 },
    });
    for (const nowMs of [now, BigInt(now), String(now)]) {
      for (const answer of [[lock, nowMs], { lock, now_ms: nowMs }]) {
        for (const { client } of mocks(() => [answer])) {
          const found = await createPostgresBackend(client).lookup({ lockId: LOCK_ID });
          expect(found).toMatchObject({ expiresAtMs: now + 9_000, acquiredAtMs: now - 5 });
        }
      }
    }
  });

  test("that answers with nonsense is an internal error", async () => {
    for (const rows of [[], [{}], [{ outcome: "maybe" }], [{ outcome: {} }], [[[]]]]) {
      for (const { client } of mocks(() => rows)) {
        const error = await lockError(createPostgresBackend(client).isLocked({ key: "key" }));
        expect(error.code).toBe("Internal");
      }
    }
  });

  test("is not closed with the backend", async () => {
    for (const { client } of mocks(() => [GRANTED])) {
      const end = vi.fn();
      const backend = createPostgresBackend(Object.assign(client, { end }));
      await backend.close();
      expect(end).not.toHaveBeenCalled();
    }
  });

  test.each<[unknown, LockErrorCode]>([
    [{ code: "42P01" }, "InvalidArgument"],
    [{ code: "42501" }, "AuthFailed"],
    [{ code: "28P01" }, "AuthFailed"],
    [{ code: "53300" }, "ServiceUnavailable"],
    [{ code: "57014" }, "NetworkTimeout"],
    [{ code: "57P01" }, "ServiceUnavailable"],
    [{ code: "25006" }, "ServiceUnavailable"],
    [{ code: "ECONNREFUSED" }, "ServiceUnavailable"],
    [{ code: "ECONNRESET" }, "ServiceUnavailable"],
    [{ code: "ETIMEDOUT" }, "NetworkTimeout"],
    [{ code: "CONNECT_TIMEOUT" }, "NetworkTimeout"],
    [{ code: "CONNECTION_CLOSED" }, "ServiceUnavailable"],
    [{ code: "SOMETHING" }, "Internal"],
    [{ code: 7 }, "Internal"],
    [{}, "Internal"],
    [null, "Internal"],
    ["secret", "Internal"],
  ])("that fails with %j is classified by its code", async (fields, code) => {
    const reason =
      typeof fields === "object" && fields !== null
        ? Object.assign(new Error("secret"), fields)
        : fields;
    for (const { client } of mocks(() => Promise.reject(reason))) {
      const error = await lockError(createPostgresBackend(client).isLocked({ key: "key" }));
      expect(error.code).toBe(code);
      expect(inspect(error, { depth: 9 })).not.toContain("secret");
    }
  });

  test("that loses against another transaction is asked again", async () => {
    let tries = 0;
    for (const { client, calls } of mocks(() => {
      tries += 1;
      if (tries % 3 > 0) throw Object.assign(new Error("lost"), { code: "40001" });
      return [GRANTED];
    })) {
      expect((await createPostgresBackend(client).acquire({ key: "key", ttlMs: 5_000 })).ok).toBe(
        true,
      );
      expect(calls).toHaveLength(3);
    }
  });

  test("that does not answer is not waited for, and what it may have done is undone", async () => {
    let answer: (rows: unknown[]) => void = () => undefined;
    const pending = new Promise<unknown[]>((done) => (answer = done));
    const texts: [string, unknown[] | undefined][] = [];
    const unsafe = (text: string, params?: unknown[]) => {
      texts.push([text, params]);
      if (texts.length === 1) return pending;
      // Before its time is over, it looks for who is in its way.
      if (text.includes("pg_locks")) return Promise.resolve([]);
      return Promise.resolve([{ lock_id: LOCK_ID, outcome: "released" }]);
    };
    const undoing = () => texts.filter(([text]) => !text.includes("pg_locks"))[1];
    const backend = createPostgresBackend({ unsafe }, { operationTimeoutMs: 50 });
    const error = await lockError(backend.acquire({ key: "key", ttlMs: 5_000 }));
    expect(error.code).toBe("NetworkTimeout");
    await vi.waitFor(() => {
      expect(undoing()).toBeDefined();
    });
    expect(undoing()?.[0]).toMatch(/DELETE/);
    expect(undoing()?.[1]).toContain(texts[0]?.[1]?.[3]);
    answer([]);
    await backend.close();
  });
});

describe("clients on a server", () => {
  let server: PostgresServer;
  let at: { host: string; port: number; user: string; database: string };
  beforeAll(async () => {
    server = await startPostgres();
    at = { host: server.folder, port: server.port, user: USER, database: "postgres" };
    await setupSchema(server.socketUrl);
  });
  afterAll(async () => {
    await server.stop();
  });

  /** Takes a lock, looks at it, and frees it. */
  async function tryAll(
    client: PostgresClient,
    transport: "native" | "client" = "client",
  ): Promise<void> {
    const backend = createPostgresBackend(client, { transport });
    onTestFinished(backend.close);
    const key = newKey();
    const held = await take(backend, key);
    expect(await backend.isLocked({ key })).toBe(true);
    expect(await backend.lookup({ key })).toMatchObject({ fence: held.fence });
    expect(await backend.extend({ lockId: held.lockId, ttlMs: 5_000 })).toMatchObject({ ok: true });
    expect(await backend.release({ lockId: held.lockId })).toEqual({ ok: true });
  }

  test("postgres.js with transformed names and values", async () => {
    const sql = postgres({
      ...at,
      transform: { ...postgres.camel, undefined: null },
      types: { bigint: postgres.BigInt },
    });
    onTestFinished(() => sql.end());
    await tryAll(sql);
  });

  test("postgres.js within a transaction, and with a reserved connection", async () => {
    const sql = postgres(at);
    onTestFinished(() => sql.end());
    await sql.begin(async (tx) => {
      await tryAll(tx);
    });
    const reserved = await sql.reserve();
    await tryAll(reserved);
    reserved.release();
  });

  test("a client of pg, also when it is connected", async () => {
    const client = new Client(at);
    await client.connect();
    onTestFinished(() => client.end());
    await tryAll(client);
    await tryAll(client, "native");
  });

  test("a client of pg's pool, also when it is connected", async () => {
    const pool = new Pool(at);
    onTestFinished(() => pool.end());
    const client = await pool.connect();
    await tryAll(client);
    await tryAll(client, "native");
    client.release();
  });

  test.each(["repeatable read", "serializable"])(
    "%s as the default isolation: locks exclude all the same",
    { timeout: 60_000 },
    async (level) => {
      const connection = { default_transaction_isolation: level };
      const sql = postgres({ ...at, max: 8, connection: connection as never });
      onTestFinished(() => sql.end());
      const pool = new Pool({ ...at, max: 8, options: `-c default_transaction_isolation=${level.replace(" ", "\\ ")}` }); // prettier-ignore
      onTestFinished(() => pool.end());
      const backends = [
        createPostgresBackend(sql, { transport: "client" }),
        createPostgresBackend(pool, { transport: "client" }),
        createPostgresBackend(sql),
      ] as const;
      onTestFinished(async () => {
        await Promise.all(backends.map((backend) => backend.close()));
      });
      const key = newKey();
      let inside = 0;
      const fences: string[] = [];
      await Promise.all(
        Array.from({ length: 12 }, async (_, worker) => {
          const backend = backends[worker % backends.length] ?? backends[0];
          for (let taken = 0; taken < 5;) {
            const result = await backend.acquire({ key, ttlMs: 30_000 });
            if (!result.ok) continue;
            inside += 1;
            expect(inside).toBe(1);
            fences.push(result.fence);
            taken += 1;
            inside -= 1;
            expect((await result.release()).ok).toBe(true);
          }
        }),
      );
      expect(fences).toEqual([...new Set(fences)].sort());
      expect(fences).toHaveLength(60);
    },
  );
});
