/** A pooler that says for the server that a statement failed, when it was committed: nothing is left behind. */

import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { Pool } from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { createPostgresBackend, setupSchema } from "syncguard/postgres";
import { lockError } from "../support/errors";
import { expectFree } from "../support/load";
import { type PostgresServer, startPostgres, USER } from "../support/postgres";
import { newKey, take } from "../support/suite";

let server: PostgresServer;
beforeAll(async () => {
  server = await startPostgres();
  await setupSchema(server.url);
});
afterAll(() => server.stop());

/** An error that ends the session, as PgBouncer 1.18 sends it: with severity, state and text, and no more. */
function denial(severity: string): Buffer {
  const body = Buffer.from(`S${severity}\0C08P01\0Mserver conn crashed?\0\0`);
  const head = Buffer.alloc(5);
  head.write("E");
  head.writeInt32BE(body.length + 4, 1);
  return Buffer.concat([head, body]);
}

/** The kinds of the messages that a server has sent: their first letters. */
function kinds(replies: Buffer): string {
  let found = "";
  for (let at = 0; at + 5 <= replies.length; at += replies.readInt32BE(at + 1) + 1) {
    found += String.fromCharCode(replies.readUInt8(at));
  }
  return found;
}

/** A way to the server on which `deny` takes the answers to what has been sent on open connections. */
async function startPooler() {
  const open = new Set<{ denied: string | undefined }>();
  const proxy = createServer((socket) => {
    const fate: { denied: string | undefined } = { denied: undefined };
    open.add(fate);
    const onward = connect(server.port, "127.0.0.1");
    let withheld = Buffer.alloc(0);
    socket.on("data", (bytes) => onward.write(bytes));
    onward.on("data", (bytes: Buffer) => {
      if (fate.denied === undefined) {
        socket.write(bytes);
        return;
      }
      withheld = Buffer.concat([withheld, bytes]);
      // postgres.js asks for a statement's description before it has it carried out.
      if (/^[1tTn]*$/.test(kinds(withheld))) {
        socket.write(withheld);
        withheld = Buffer.alloc(0);
      } else if (kinds(withheld).endsWith("Z")) {
        socket.end(denial(fate.denied));
      }
    });
    socket.on("close", () => onward.destroy()).on("error", () => undefined);
    onward.on("close", () => socket.destroy()).on("error", () => undefined);
  });
  await once(proxy.listen(0, "127.0.0.1"), "listening");
  onTestFinished(() => {
    proxy.close();
  });
  return {
    port: (proxy.address() as AddressInfo).port,
    deny: (severity: string) => {
      for (const fate of open) fate.denied = severity;
    },
  };
}

test.each([
  ["native", "FATAL"],
  ["postgres.js", "FATAL"],
  ["pg", "FATAL"],
  // In the words of a server, or of a pooler, that speaks German.
  ["postgres.js", "FATAL:"],
  ["pg", "FATAL:"],
])("an acquisition through %s that was committed and denied with %s", async (way, severity) => {
  const pooler = await startPooler();
  const direct = createPostgresBackend(server.url);
  onTestFinished(direct.close);
  const url = new URL(server.url);
  url.port = String(pooler.port);
  url.username = USER;
  const client = () => {
    if (way === "pg") {
      const pool = new Pool({ connectionString: url.href, max: 1 });
      pool.on("error", () => undefined);
      onTestFinished(() => pool.end());
      return pool;
    }
    const sql = postgres(url.href, { max: 1, ssl: false, backoff: false });
    onTestFinished(() => sql.end({ timeout: 1 }));
    return sql;
  };
  const backend =
    way === "native"
      ? createPostgresBackend(url.href)
      : createPostgresBackend(client(), { transport: "client" });
  onTestFinished(backend.close);
  const key = newKey();
  await backend.isLocked({ key });
  pooler.deny(severity);
  const error = await lockError(backend.acquire({ key, ttlMs: 120_000 }));
  expect(error.code).toBe("ServiceUnavailable");
  // Nobody waited for a connection, though the release that undoes it is waiting for a new one.
  expect(error.message).not.toContain("the client's pool");
  await expectFree(direct, [key]);
  // It was granted: a fence was spent.
  const admin = postgres(server.url);
  onTestFinished(() => admin.end());
  const counters = await admin`
    SELECT fence FROM syncguard_fence_counters WHERE fence_key = ${`fence:${key}`}`;
  const held = await take(direct, key);
  expect(counters).toHaveLength(1);
  expect(Number(held.fence)).toBeGreaterThan(Number(counters[0]?.fence));
  await held.release();
});
