// Has many pages of a dashboard open, while locks come and go: node pages.mjs '{"url":…,"address":…}'

import { get } from "node:http";
import { createRedisBackend } from "syncguard/redis";

const PAGES = 50;
const HELD = 100;
/** So many of the locks are released and acquired anew a second. */
const CHANGES = 10;

const { url, address } = JSON.parse(process.argv[2]);
const backend = createRedisBackend(address);

/** When locks were granted that the first page was not told of yet, by their fence. */
const granted = new Map();
const shownMs = [];

function hear(data) {
  for (const [, fence] of String(data).matchAll(/"fence":"(\d+)"/g)) {
    if (granted.has(fence)) shownMs.push(Math.round(performance.now() - granted.get(fence)));
    granted.delete(fence);
  }
}

for (let page = 0; page < PAGES; page += 1) {
  get(url, (stream) => stream.on("data", page === 0 ? hear : () => undefined));
}
const locks = [];
for (let count = 0; count < HELD; count += 1) {
  locks.push(await backend.lock(`held:${count}`, { ttlMs: 3_600_000 }));
}
setInterval(async () => {
  const { key, release } = locks.shift();
  await release();
  const lock = await backend.lock(key, { ttlMs: 3_600_000 });
  granted.set(lock.fence, performance.now());
  locks.push(lock);
}, 1_000 / CHANGES);

process.on("message", () => process.send({ shownMs: shownMs.sort((a, b) => a - b) }));
process.send(`${PAGES} pages, ${HELD} locks on Redis and ${CHANGES} changes a second`);
