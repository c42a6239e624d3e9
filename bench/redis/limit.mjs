// The server alone, as redis-benchmark loads it: how many pairs it could serve, and what scripts cost it.

import { cjsonScripts } from "./cjson.mjs";
import { coreScript } from "./contenders.mjs";
import { redisBenchmark, scriptMicros } from "./server.mjs";

const LOCKS = 200_000;
const REQUESTS = 60_000;
const ID = "AAAAAAAAAAAAAAAAAAAAAA";
const ANY = "__rand_int__";

// Locks of one id: redis-benchmark draws a number for each place where one stands.
const FILL = `
for number = 0, ${LOCKS - 1} do
  local name = string.format('%012d', number)
  redis.call('SET', 'lock:' .. name, '{"lockId":"${ID}","expiresAtMs":9000000000000,"acquiredAtMs":1700000000000,'
    .. '"fence":"000000000000001","key":"' .. name .. '"}')
  redis.call('SET', 'id:' .. name, 'lock:' .. name)
end`;

/** What is called, with how many keys and which. */
const CALLS = {
  acquire: [3, `free:${ANY}`, `id:${ANY}`, `fence:${ANY}`, ID, 30000, 1000, "free", "key", '"key":"free"}', 31000],
  release: [1, `id:${ANY}`, ID, 1000],
  extend: [1, `id:${ANY}`, ID, 1000, 30000, 31000],
  is_locked: [1, `lock:${ANY}`, "bench", 1000, "false"],
}; // prettier-ignore

/** Calls per second, and microseconds of the server's time per call. */
async function measure({ port, admin }, script, call) {
  await admin.flushall();
  await admin.eval(FILL, 0);
  const sha = await admin.script("LOAD", script);
  await admin.config("RESETSTAT");
  const rate = await redisBenchmark(port, REQUESTS, LOCKS, ["EVALSHA", sha, ...call]);
  return { rate, micros: await scriptMicros(admin) };
}

/** Pairs per second of acquire and release. */
export async function pairLimit(server) {
  const acquire = await measure(server, coreScript("acquire"), CALLS.acquire);
  const release = await measure(server, coreScript("release"), CALLS.release);
  return 1 / (1 / acquire.rate + 1 / release.rate);
}

/** For each script, the microseconds of the core's and of the one with cjson, in turn. */
export async function scriptCosts(server, runs) {
  const costs = Object.entries(CALLS).map(([name, call]) => ({ name, call, core: [], cjson: [] }));
  for (let run = 0; run < runs; run += 1) {
    for (const { name, call, core, cjson } of costs) {
      core.push((await measure(server, coreScript(name), call)).micros);
      cjson.push((await measure(server, cjsonScripts[name], call)).micros);
    }
  }
  return costs;
}
