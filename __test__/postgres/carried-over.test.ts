/** Clients whose settings native connections use: only such as are what their class makes, and as they are at that moment. */

import { Client, Pool } from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { createPostgresBackend, type PostgresClient, setupSchema } from "syncguard/postgres";
import { thrownLockError } from "../support/errors";
import { type PostgresServer, startPostgres } from "../support/postgres";
import { newKey } from "../support/suite";
import { until } from "../support/until";

let server: PostgresServer;
let admin: Client;
beforeAll(async () => {
  server = await startPostgres();
  admin = new Client(server.socketUrl);
  await admin.connect();
  await setupSchema(server.url);
});
afterAll(async () => {
  await admin.end();
  await server.stop();
});

const place = () => ({ host: "127.0.0.1", port: server.port, database: "postgres" });

describe("behind a Proxy a client is driven", () => {
  const CLIENTS: readonly (readonly [string, () => PostgresClient])[] = [
    ["Pool", () => new Pool({ connectionString: server.url })],
    ["Client", () => new Client(server.url)],
    ["postgres.js", () => postgres(server.url)],
  ];
  test.each(CLIENTS)("%s", (_, create) => {
    const client = new Proxy(create(), {});
    expect(createPostgresBackend(client).transport?.way).toBe("client");
    const error = thrownLockError(() => createPostgresBackend(client, { transport: "native" }));
    expect(error.code).toBe("InvalidArgument");
    expect(error.message).toContain("which go through a Proxy");
  });

  test("and so is a pool whose clients were patched, unless a tracing agent has done it", () => {
    class Tenant extends Client {}
    const original = Client.prototype.query as (...args: unknown[]) => unknown;
    const wrapped = function (this: unknown, ...args: unknown[]) {
      return original.apply(this, args);
    };
    Object.assign(Tenant.prototype, { query: wrapped });
    const pool = () =>
      Object.assign(new Pool({ connectionString: server.url }), { Client: Tenant });
    const error = thrownLockError(() => createPostgresBackend(pool(), { transport: "native" }));
    expect(error.message).toContain("query of its clients, which is not its class's,");
    Object.assign(Tenant.prototype, { query: original });

    onTestFinished(() => {
      Client.prototype.query = original as never;
    });
    const marks = { __original: original, __wrapped: true, __unwrap: () => undefined };
    Client.prototype.query = Object.assign(wrapped, marks) as never;
    const traced = new Pool({ connectionString: server.url });
    expect(createPostgresBackend(traced).transport?.way).toBe("native");
  });
});

test.each([
  [
    "Pool",
    (user: string, password: string) => new Pool({ ...place(), user, password }),
    "password",
  ],
  [
    "postgres.js",
    (user: string, password: string) => postgres({ ...place(), user, password }),
    "pass",
  ],
] as const)(
  "a password that is changed is used by the next connection: %s",
  async (_, create, name) => {
    const role = `role_${name}`;
    await admin.query(`CREATE ROLE ${role} LOGIN SUPERUSER PASSWORD 'before'`);
    const client = create(role, "before");
    const backend = createPostgresBackend(client as PostgresClient, { transport: "native" });
    await (await backend.lock(newKey())).release();
    await admin.query(`ALTER ROLE ${role} PASSWORD 'after'`);
    (client.options as unknown as Record<string, string>)[name] = "after";
    await admin.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", [
      role,
    ]);
    await until(async () => {
      try {
        return (await backend.acquire({ key: newKey(), ttlMs: 60_000 })).ok;
      } catch (error) {
        expect(error).toMatchObject({ code: "ServiceUnavailable" });
        return false;
      }
    });
    await backend.close();
  },
);
