// The same as CommonJS, in memory.

const syncguard = require("syncguard");
const { createRedisBackend } = require("syncguard/redis");
const { createSqliteBackend } = require("syncguard/sqlite");
const run = require("./suite.cjs");

const url = process.env.REDIS_URL;
run(syncguard, {
  "SQLite in memory": () => createSqliteBackend(),
  ...(url ? { Redis: () => createRedisBackend(url, { keyPrefix: `c${process.pid}` }) } : {}),
}).catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
