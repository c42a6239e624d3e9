// Takes a lock on Redis, or on the default backend, and prints what is wrong if that cannot be done.

import process from "node:process";

try {
  const { createRedisBackend } = await import("syncguard/redis");
  const { lock } = await import("syncguard");
  // Node's process.env would need a permission that is tested here.
  const env = (name) => {
    try {
      return process.env[name];
    } catch {
      return undefined;
    }
  };
  const url = env("REDIS_URL") ?? "redis://127.0.0.1:1";
  const work = () => console.log("LOCKED");
  if (env("USE_DEFAULT") === undefined) {
    const backend = createRedisBackend(url);
    await lock(backend, work, { key: "permissions" });
    await backend.close();
  } else await lock(work, { key: "permissions" });
} catch (error) {
  console.log(`${error.code}: ${error.message}`);
}
