// Several servers, each a process of its own, on one store.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { SyncGuardBackend } from "syncguard";
import { createAtomicLock, type ForrstResponse } from "syncguard/forrst";
import { createPostgresBackend, setupSchema } from "syncguard/postgres";
import { createRedisBackend } from "syncguard/redis";
import { createSqliteBackend } from "syncguard/sqlite";
import { start } from "../support/child";
import { startPostgres } from "../support/postgres";
import { startRedis } from "../support/redis";
import { temporaryFolder } from "../support/temp";
import {
  charge,
  codes,
  dataOf,
  ownerOf,
  RELEASE,
  succeed,
  system,
  ttl,
  unreachable,
} from "./requests";

const folder = temporaryFolder();
afterAll(() => {
  folder.remove();
});

type Server = {
  url: string;
  stop: () => unknown;
  backend: SyncGuardBackend;
};

const stores: Record<string, () => Promise<Server> | Server> = {
  Redis: async () => {
    const { url, stop } = await startRedis();
    return { url, stop, backend: createRedisBackend(url) };
  },
  PostgreSQL: async () => {
    const { url, stop } = await startPostgres();
    await setupSchema(url);
    return { url, stop, backend: createPostgresBackend(url) };
  },
  SQLite: () => {
    const path = join(folder.path, "locks.db");
    return { url: path, stop: () => undefined, backend: createSqliteBackend(path) };
  },
};

describe.each(Object.entries(stores))("servers on one %s", (store, open) => {
  let server: Server;
  beforeAll(async () => {
    server = await open();
  });
  afterAll(async () => {
    await server.backend.close();
    await server.stop();
  });
  const key = "shared:key";

  test("serialise a function", { timeout: 60_000 }, async () => {
    const log = join(folder.path, `${store}.log`);
    const work = ["work", "payments.charge", "8"];
    const programs = [1, 2].map(() =>
      start("node", "forrst-server.mjs", [server.url, log, ...work]),
    );
    const pids = programs.map(({ child }) => child.pid);
    for (const { finished } of programs) {
      const { code, stdout, stderr } = await finished;
      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
      const responses = JSON.parse(stdout) as ForrstResponse[];
      expect(responses).toHaveLength(8);
      for (const response of responses) expect(dataOf(response)).not.toHaveProperty("lost");
    }
    const lines = readFileSync(log, "utf8").trim().split("\n");
    expect(lines).toHaveLength(32);
    // Whoever begins also ends before another begins.
    for (let at = 0; at < lines.length; at += 2) {
      expect(lines[at]?.[0]).toBe("+");
      expect(lines[at + 1]).toBe(lines[at]?.replace("+", "-"));
    }
    expect(new Set(lines.map((line) => Number(line.slice(1))))).toEqual(new Set(pids));
  });

  test("let functions run side by side, and release each other's locks by key and owner", async () => {
    const { handle } = createAtomicLock(server.backend);
    const hold = start("node", "forrst-server.mjs", [server.url, "", "hold", "billing.close"]);
    await hold.printed("holding");

    // The same key: another function runs, the same one does not, and a global lock is a third.
    expect(dataOf(await handle(charge({ key, ttl }), succeed))).toMatchObject({ acquired: true });
    const same = charge({ key, ttl }, "billing.close");
    expect(codes(await handle(same, unreachable))).toEqual(["LOCK_ACQUISITION_FAILED"]);
    const global = charge({ key, ttl, scope: "global" }, "billing.close");
    expect(dataOf(await handle(global, succeed))).toMatchObject({ acquired: true });

    hold.child.stdin.end();
    const { code, stdout, stderr } = await hold.finished;
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    const response = JSON.parse(stdout.split("\n")[1] ?? "") as ForrstResponse;

    // That process has ended; its lock has not.
    expect(codes(await handle(same, unreachable))).toEqual(["LOCK_ACQUISITION_FAILED"]);
    const full = `lock:billing.close:${key}`;
    const release = (owner: string) => system(RELEASE, { key: full, owner });
    expect(codes(await handle(release("other"), unreachable))).toEqual(["LOCK_OWNERSHIP_MISMATCH"]);
    const released = await handle(release(ownerOf(response)), unreachable);
    expect(released.result).toEqual({ released: true, key: full });
    expect(dataOf(await handle(same, succeed))).toMatchObject({ acquired: true });
  });
});
