// The stores on which is measured: each is started, and named by what another process needs to open a backend on it.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { root } from "../../scripts/lib/paths.mjs";
import { startServer as startFirestore } from "../firestore/server.mjs";
import { built } from "../lib/built.mjs";
import { startServer as startPostgres, USER } from "../postgres/server.mjs";
import { startServer as startRedis } from "../redis/server.mjs";

export const stores = {
  async redis() {
    const server = await startRedis();
    return { place: { kind: "redis", at: `redis://127.0.0.1:${server.port}` }, server };
  },
  async postgres() {
    const server = await startPostgres();
    const at = `postgres://${USER}@127.0.0.1:${server.port}/postgres`;
    return { place: { kind: "postgres", at }, server };
  },
  async firestore() {
    const server = await startFirestore();
    return { place: { kind: "firestore", at: server.host }, server };
  },
  async sqlite() {
    const folder = mkdtempSync(join(tmpdir(), "syncguard-bench-"));
    const stop = async () => rmSync(folder, { recursive: true, force: true });
    return { place: { kind: "sqlite", at: join(folder, "locks.db") }, server: { stop } };
  },
};

/** A backend there, of the build in the folder `from`. `options` are those of Firestore. */
export async function open({ kind, at, options }, from = root) {
  const entry = built(from, `syncguard/${kind}`);
  switch (kind) {
    case "redis":
      return entry.createRedisBackend(at);
    case "postgres":
      await entry.setupSchema(at);
      return entry.createPostgresBackend(at);
    case "firestore":
      return entry.createFirestoreBackend({ projectId: "bench", emulatorHost: at }, options);
    default:
      return entry.createSqliteBackend(at);
  }
}
