/** The types as CommonJS sees them. Compiled, never run. */

import syncguard = require("syncguard");
import sqlite = require("syncguard/sqlite");

const backend: syncguard.LockBackend<sqlite.SqliteCapabilities> =
  sqlite.createSqliteBackend(":memory:");
const locked: Promise<syncguard.Fence> = syncguard.lock(backend, ({ fence }) => fence, {
  key: "k",
});
void locked.catch((error: unknown) => {
  if (error instanceof syncguard.LockError) void (error.code satisfies syncguard.LockErrorCode);
});
