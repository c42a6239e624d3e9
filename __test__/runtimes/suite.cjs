// The public API, checked with no more than node:assert, so that every runtime can run it. Each check is a function that
// gets a backend and a key of its own.

const assert = require("node:assert/strict");
const { AsyncLocalStorage } = require("node:async_hooks");
const { setTimeout: sleep } = require("node:timers/promises");

/** What is checked on every store: `api` is `syncguard`. */
function checksOf(api) {
  const { LockError, getById, getByKey, getByKeyRaw, hashKey, lock, owns, withTelemetry } = api;
  const rejects = (promise, code) =>
    assert.rejects(promise, (error) => {
      assert(error instanceof LockError, String(error));
      assert.equal(error.code, code, error.message);
      return true;
    });

  return {
    async "acquires, refuses a second holder, and releases"({ backend, key }) {
      const first = await backend.acquire({ key, ttlMs: 30_000 });
      assert(first.ok);
      assert.match(first.fence, /^\d{15}$/);
      const second = await backend.acquire({ key, ttlMs: 30_000 });
      assert.equal(second.ok, false);
      assert.equal(second.reason, "locked");
      assert.deepEqual(await first.release(), { ok: true });
      assert.deepEqual(await backend.release({ lockId: first.lockId }), { ok: false });
      const third = await backend.acquire({ key, ttlMs: 30_000 });
      assert(third.fence > first.fence);
      await third.release();
    },

    async "extends what is held, and nothing else"({ backend, key }) {
      const held = await backend.lock(key, { ttlMs: 5_000 });
      const before = held.expiresAtMs;
      const extended = await held.extend(60_000);
      assert(extended.ok && extended.expiresAtMs > before + 30_000);
      assert.equal(held.expiresAtMs, extended.expiresAtMs);
      await held.release();
      assert.deepEqual(await backend.extend({ lockId: held.lockId, ttlMs: 1000 }), { ok: false });
    },

    async "looks up and force-releases"({ backend, key }) {
      assert.equal(await backend.isLocked({ key }), false);
      assert.equal(await getByKey(backend, key), null);
      const held = await backend.lock(key, { owner: "a label" });
      assert.equal(await backend.isLocked({ key }), true);
      assert.equal((await getByKey(backend, key)).keyHash, hashKey(key));
      assert.equal((await getById(backend, held.lockId)).fence, held.fence);
      assert.equal((await getByKeyRaw(backend, key)).owner, "a label");
      assert.equal(await owns(backend, held.lockId), true);
      assert.deepEqual(await backend.forceRelease(key), { ok: true });
      assert.equal(await owns(backend, held.lockId), false);
      assert.deepEqual(await held.release(), { ok: false });
    },

    async "runs a function under a lock, and gives what it gives or throws"({ backend, key }) {
      const result = await lock(
        backend,
        async (handle) => {
          assert.equal(handle.key, key);
          assert.equal(await backend.isLocked({ key }), true);
          return `under ${handle.fence}`;
        },
        { key },
      );
      assert.match(result, /^under \d{15}$/);
      const own = new Error("its own");
      const thrown = lock(backend, () => Promise.reject(own), { key });
      await assert.rejects(thrown, (error) => error === own);
      assert.equal(await backend.isLocked({ key }), false);
    },

    async "wakes who waits, in the order in which they came"({ backend, key }) {
      const held = await backend.lock(key);
      const order = [];
      const acquisition = { timeoutMs: 20_000, maxRetries: 1000 };
      const waiters = [1, 2, 3].map((name) =>
        lock(backend, () => order.push(name), { key, acquisition }),
      );
      await until(async () => (await backend.acquire({ key, ttlMs: 1000 })).ok === false);
      assert.deepEqual(order, []);
      await held.release();
      await Promise.all(waiters);
      assert.deepEqual(order, [1, 2, 3]);
    },

    async "gives up in time, and when it is told to"({ backend, key }) {
      const held = await backend.lock(key);
      await rejects(backend.lock(key, { acquisition: { timeoutMs: 1_000 } }), "AcquisitionTimeout");
      await rejects(backend.lock(key, { signal: AbortSignal.timeout(50) }), "Aborted");
      await rejects(backend.lock(key, { signal: AbortSignal.abort() }), "Aborted");
      await held.release();
      assert.equal(await backend.isLocked({ key }), false);
    },

    async "keeps a lock that extends itself, while the event loop is blocked, too"({
      backend,
      key,
    }) {
      const held = await backend.lock(key, { ttlMs: 400, autoExtend: true });
      const before = held.expiresAtMs;
      block(1700);
      assert.equal(await backend.isLocked({ key }), true);
      await until(async () => held.expiresAtMs > before + 800);
      assert.equal(held.signal.aborted, false);
      assert.deepEqual(await held.release(), { ok: true });
    },

    async "tells of a lock that is lost"({ backend, key }) {
      const held = await backend.lock(key, { ttlMs: 600, autoExtend: true });
      const lost = new Promise((resolve) => held.signal.addEventListener("abort", resolve));
      await backend.forceRelease(key);
      await lost;
      assert.equal(held.signal.reason.code, "LockLost");
    },

    async "ends a lock whose time is over"({ backend, key }) {
      const first = await backend.acquire({ key, ttlMs: 50 });
      const second = await backend.lock(key, { acquisition: { timeoutMs: 20_000 } });
      assert(second.fence > first.fence);
      assert.deepEqual(await first.release(), { ok: false });
      await second.release();
    },

    async "explains what is wrong, and shows no key"({ backend, key }) {
      await rejects(backend.lock(""), "InvalidArgument");
      await rejects(backend.acquire({ key, ttlMs: -1 }), "InvalidArgument");
      await rejects(backend.release({ lockId: "none" }), "InvalidArgument");
      const held = await backend.lock(key);
      const error = await backend.lock(key, { acquisition: { timeoutMs: 20 } }).catch((e) => e);
      assert.equal(error.context.key, key);
      assert(!`${error.message} ${JSON.stringify(error)}`.includes(key));
      await held.release();
    },

    async "disposes of handles"({ backend, key }) {
      const held = await backend.lock(key);
      await held[Symbol.asyncDispose]();
      assert.equal(await backend.isLocked({ key }), false);
    },

    async "reports to telemetry"({ backend, key }) {
      const events = [];
      const observed = withTelemetry(backend, { onEvent: (event) => events.push(event) });
      await (await observed.lock(key)).release();
      assert.deepEqual(
        events.map(({ type, result }) => `${type} ${result}`),
        ["acquire ok", "release ok"],
      );
      assert.equal(events[0].keyHash, hashKey(key));
    },

    async "is told of an answer when it comes"({ backend, key }) {
      const start = performance.now();
      for (let round = 0; round < 20; round += 1) await (await backend.lock(key)).release();
      const tookMs = performance.now() - start;
      // The event loops of some runtimes do not tell of sockets, and then something else finds out a while later.
      assert(tookMs < 5_000, `20 locks took ${tookMs} ms`);
    },

    async "goes on in the asynchronous context of whoever has called"({ backend, key }) {
      const storage = new AsyncLocalStorage();
      const callers = Array.from({ length: 16 }, (_, caller) =>
        storage.run(caller, async () => {
          for (let round = 0; round < 3; round += 1) {
            // Some of them wait for others.
            const held = await backend.lock(`${key}:${caller % 12}`, { ttlMs: 30_000 });
            assert.equal(storage.getStore(), caller);
            const second = await backend.acquire({ key: `${key}:own:${caller}`, ttlMs: 30_000 });
            assert.equal(storage.getStore(), caller);
            await Promise.all([second.release(), backend.isLocked({ key })]);
            assert.equal(storage.getStore(), caller);
            await held.release().then(() => assert.equal(storage.getStore(), caller));
            const work = async () => assert.equal(storage.getStore(), caller);
            await lock(backend, work, { key: `${key}:${caller % 12}` });
            assert.equal(storage.getStore(), caller);
            const taken = backend.lock("", {}).catch(() => storage.getStore());
            assert.equal(await taken, caller);
          }
        }),
      );
      await Promise.all(callers);
    },

    async "carries many at once"({ backend, key }) {
      const all = Array.from({ length: 200 }, async (_, index) => {
        const held = await backend.lock(`${key}:${index}`);
        return held.release();
      });
      assert((await Promise.all(all)).every(({ ok }) => ok));
    },
  };
}

function block(ms) {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

async function until(isSo) {
  const end = performance.now() + 20_000;
  while (!(await isSo())) {
    assert(performance.now() < end, "it takes too long");
    await sleep(10);
  }
}

/** Runs all checks on the stores, `{ name: () => backend }`, and prints a line for each store. */
module.exports = async function run(api, stores) {
  for (const [name, open] of Object.entries(stores)) {
    const backend = open();
    const checks = Object.entries(checksOf(api));
    // Side by side: most of the time goes into waiting. Those that block the event loop, or keep the store busy, come last.
    const [blocking, others] = [true, false].map((wanted) =>
      checks.filter(([what]) => /blocked|context/.test(what) === wanted),
    );
    const perform = async ([what, check], index) => {
      try {
        await check({ backend, key: `runtimes:${process.pid}:${index}:${what.slice(0, 9)}` });
      } catch (error) {
        throw new Error(`${name}: ${what}`, { cause: error });
      }
    };
    await Promise.all(others.map(perform));
    for (const check of blocking) await perform(check, 99);
    await backend.close();
    await assert.rejects(backend.lock("closed"), (error) => error.code === "Aborted");
    console.log(`${name}: ${checks.length} checks passed`);
  }
};
