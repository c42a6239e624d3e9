/** For whom `lib` is that of ES2020, and TypeScript the oldest that knows `await using`: README.md, "Install". */

import { lock, LockError, type SyncGuardBackend } from "syncguard";
import * as common from "syncguard/common";
import * as dashboard from "syncguard/dashboard";
import * as firestore from "syncguard/firestore";
import * as forrst from "syncguard/forrst";
import * as otel from "syncguard/otel";
import * as postgres from "syncguard/postgres";
import * as redis from "syncguard/redis";
import * as redlock from "syncguard/redlock";
import * as sqlite from "syncguard/sqlite";
import * as testing from "syncguard/testing";

export const entryPoints = [
  ...[common, dashboard, firestore, forrst, otel, postgres, redis, redlock, sqlite, testing],
];

export async function work(backend: SyncGuardBackend): Promise<string> {
  try {
    await using held = await backend.lock("report:nightly", { ttlMs: 30_000 });
    held.assertHeld();
    return await lock(backend, ({ fence }) => fence, { key: "report:weekly" });
  } catch (error) {
    return error instanceof LockError ? error.code : "";
  }
}
