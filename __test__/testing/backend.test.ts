/** `syncguard/testing` as users use it. */

import { createRequire } from "node:module";
import { afterEach, describe, expect, test, vi } from "vitest";
import { getByKeyRaw, hashKey, lock, LockError, withTelemetry, type LockEvent } from "syncguard";
import { formatFence } from "syncguard/common";
import { createTestBackend, TestClock } from "syncguard/testing";
import { run } from "../support/child";
import { lockError, thrownLockError } from "../support/errors";
import { runProgram } from "../support/program";

const KEY = "account:4711";
const EXTENDING = { ttlMs: 30_000, autoExtend: true } as const;

function onTestClock() {
  const clock = new TestClock(1_000_000);
  const backend = createTestBackend({ clock });
  return { clock, backend, faults: backend.faults };
}

/** Whether a promise is settled, and how. */
function observe(promise: Promise<unknown>) {
  const seen: { value?: unknown; error?: LockError } = {};
  promise.then(
    (value) => (seen.value = value),
    (error: unknown) => (seen.error = error as LockError),
  );
  return seen;
}

describe("a clock of the test's", () => {
  test("decides when locks end, with the tolerance of a second", async () => {
    const { clock, backend } = onTestClock();
    const held = await backend.lock(KEY, { ttlMs: 10_000 });
    expect(held.expiresAtMs).toBe(1_010_000);
    const { signal } = held;
    await clock.advance(9_999);
    expect(signal.aborted).toBe(false);
    await clock.advance(1);
    expect(signal.reason).toMatchObject({ code: "LockLost" });
    expect(await backend.isLocked({ key: KEY })).toBe(true);
    await clock.advance(1_000);
    expect(await backend.isLocked({ key: KEY })).toBe(false);
    expect(clock.now()).toBe(1_011_000);
  });

  test("ends a lock that may have been made shorter, also if no answer comes", async () => {
    const { clock, backend, faults } = onTestClock();
    const held = await backend.lock(KEY, { ttlMs: 60_000 });
    const { signal } = held;
    faults.loseReply("extend");
    const extended = observe(held.extend(2_000));
    await clock.advance(1_999);
    expect(signal.aborted).toBe(false);
    await clock.advance(1);
    expect(signal.reason).toMatchObject({ code: "LockLost" });
    await clock.advance(1_000);
    expect(await backend.isLocked({ key: KEY })).toBe(false);
    await clock.advance(60_000);
    expect(extended.error).toMatchObject({ code: "NetworkTimeout" });
  });

  test("leaves a lock alone whose extension was refused before it was sent", async () => {
    const { clock, backend } = onTestClock();
    const held = await backend.lock(KEY, { ttlMs: 60_000 });
    const { signal } = held;
    expect((await lockError(held.extend(0.5))).code).toBe("InvalidArgument");
    expect((await lockError(held.extend(1_000, AbortSignal.abort()))).code).toBe("Aborted");
    await clock.advance(59_999);
    expect(signal.aborted).toBe(false);
    await clock.advance(1);
    expect(signal.aborted).toBe(true);
  });

  test.each(["before", "behind"])("one who polls %s others keeps nobody deaf", async (place) => {
    const clock = new TestClock(1_000_000);
    const backend = createTestBackend({ clock });
    const elsewhere = createTestBackend({ sharing: backend });
    const { lockId } = await elsewhere.lock(KEY, { ttlMs: 900_000 });
    const pause = { retryDelayMs: 500_000, timeoutMs: 800_000 };
    const waits = (["poll", "notify"] as const).map(
      (wait) => () => lock(backend, () => wait, { key: KEY, acquisition: { ...pause, wait } }),
    );
    const served: string[] = [];
    const waiters = (place === "before" ? waits : waits.reverse()).map((start) =>
      start().then((wait) => served.push(wait)),
    );
    await clock.advance(1_000);
    await elsewhere.release({ lockId });
    await clock.advance(0);
    expect(served).toEqual(["notify"]);
    await clock.advance(500_000);
    await Promise.all(waiters);
  });

  test("alone limits backend.lock(), and not lock(), which is as in 2.x", async () => {
    const clock = new TestClock(1_000_000);
    const backend = createTestBackend({ clock });
    await backend.acquire({ key: KEY, ttlMs: 3_600_000 });
    const acquisition = { timeoutMs: 600_000, wait: "poll" } as const;
    const method = observe(backend.lock(KEY, { acquisition }));
    const callback = observe(lock(backend, () => 1, { key: "other" }));
    await clock.advance(599_000);
    expect(method.error).toBeUndefined();
    await clock.advance(1_000);
    expect(method.error?.message).toMatch(
      /^Timeout reached before next retry \(600000 ms elapsed\)/,
    );
    expect(callback.value).toBe(1);
    // As 2.x: ten retries, after which it gives up although there is time left.
    const contract = observe(lock(backend, () => 1, { key: KEY, acquisition }));
    await clock.advance(110_000);
    expect(contract.error?.message).toMatch(/^Failed to acquire lock after /);
  });

  test("drives those who wait", async () => {
    const { clock, backend } = onTestClock();
    await backend.acquire({ key: KEY, ttlMs: 2_000 });
    const patient = { acquisition: { timeoutMs: 60_000, maxRetries: 1_000 } };
    const first = observe(backend.lock(KEY, patient));
    const second = observe(backend.lock(KEY, { acquisition: { timeoutMs: 2_500 } }));
    await clock.advance(2_400);
    expect({ ...first, ...second }).toEqual({});
    await clock.advance(100);
    expect(second.error).toMatchObject({ code: "AcquisitionTimeout" });
    expect(first).toEqual({});
    await clock.advance(500);
    expect(first.value).toMatchObject({ fence: formatFence(clock.now()) });
  });

  test("drives heartbeats", async () => {
    const { clock, backend } = onTestClock();
    const held = await backend.lock(KEY, EXTENDING);
    for (let hour = 0; hour < 3; hour += 1) {
      await clock.advance(3_600_000);
      expect(held.signal.aborted).toBe(false);
      expect(held.expiresAtMs).toBeGreaterThan(clock.now());
    }
    expect(await held.release()).toEqual({ ok: true });
    const limited = await backend.lock(KEY, { ttlMs: 3_000, autoExtend: { maxMs: 10_000 } });
    await clock.advance(9_999);
    expect(limited.signal.aborted).toBe(false);
    await clock.advance(1);
    expect((limited.signal.reason as LockError).message).toContain("as long as autoExtend allows");
  });

  test("refuses to go back", async () => {
    const { clock } = onTestClock();
    expect((await lockError(clock.advance(-1))).code).toBe("InvalidArgument");
    expect(thrownLockError(() => new TestClock(Number.NaN)).code).toBe("InvalidArgument");
  });
});

describe("fake timers", () => {
  afterEach(() => {
    vi.useRealTimers();
  });

  test("drive expiry, waits and heartbeats", async () => {
    vi.useFakeTimers({
      toFake: ["setTimeout", "clearTimeout", "Date", "performance", "setImmediate"],
    });
    const backend = createTestBackend();
    const held = await backend.lock(KEY, EXTENDING);
    const waiting = observe(
      backend.lock(KEY, { acquisition: { timeoutMs: 200_000, maxRetries: 99 } }),
    );
    await vi.advanceTimersByTimeAsync(100_000);
    expect(held.signal.aborted).toBe(false);
    expect(waiting).toEqual({});
    backend.faults.steal(KEY, 10_000);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(held.signal.reason).toMatchObject({ code: "LockLost" });
    expect(waiting).toEqual({});
    await vi.advanceTimersByTimeAsync(1_000);
    expect(waiting.value).toMatchObject({ fence: formatFence(Date.now()) });
    await (waiting.value as typeof held).release();
    await backend.close();
    // Nothing is left that would keep a test runner waiting.
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe("what users test", () => {
  test("a lock that is lost while the work runs", async () => {
    const { clock, backend, faults } = onTestClock();
    const pages: number[] = [];
    const work = observe(
      lock(
        backend,
        async ({ signal }) => {
          for (let page = 1; page <= 10; page += 1) {
            signal.throwIfAborted();
            pages.push(page);
            await new Promise<void>((resolve) => void clock.setTimeout(resolve, 20_000));
          }
        },
        { key: KEY, ...EXTENDING },
      ),
    );
    await clock.advance(45_000);
    const stolenMs = clock.now();
    const thief = faults.steal(KEY);
    await clock.advance(200_000);
    expect(work.error).toMatchObject({ code: "LockLost", context: { key: KEY } });
    expect(pages).toEqual([1, 2, 3]);
    expect(thief.fence).toBe(formatFence(stolenMs));
  });

  test("a lock whose time is over, and one that is lost at once", async () => {
    const { backend, faults } = onTestClock();
    const held = await backend.lock(KEY);
    expect(faults.expire(KEY)).toBe(true);
    expect(await backend.isLocked({ key: KEY })).toBe(false);
    expect(await held.extend(30_000)).toEqual({ ok: false });
    expect(faults.expire(KEY)).toBe(false);
    const again = await backend.lock(KEY);
    expect(faults.lose(KEY)).toBe(true);
    expect(again.signal.reason).toMatchObject({ code: "LockLost" });
    expect(faults.lose(KEY)).toBe(false);
    expect(await again.release()).toEqual({ ok: false });
  });

  test("contention between two processes", async () => {
    const { clock, backend } = onTestClock();
    const other = createTestBackend({ sharing: backend });
    const held = await other.lock(KEY, { owner: "other" });
    expect(await backend.acquire({ key: KEY, ttlMs: 1_000 })).toMatchObject({ reason: "locked" });
    expect((await getByKeyRaw(backend, KEY))?.owner).toBe("other");
    const waiting = observe(backend.lock(KEY));
    await clock.advance(50);
    expect(waiting).toEqual({});
    // The store tells, so no time has to pass.
    await held.release();
    await clock.advance(0);
    expect(waiting.value).toBeDefined();
  });

  test("a release is heard of, however near it is to the attempt", async () => {
    const { clock, backend } = onTestClock();
    const other = createTestBackend({ sharing: backend });
    for (let turns = 0; turns < 30; turns += 1) {
      const held = await other.lock(KEY);
      const waiting = backend.lock(KEY);
      const seen = observe(waiting);
      for (let turn = 0; turn < turns; turn += 1) await Promise.resolve();
      await held.release();
      await clock.advance(0);
      expect(seen.value, `after ${turns} turns`).toBeDefined();
      await (await waiting).release();
    }
  });

  test("a server that is down, and comes back", async () => {
    const { clock, backend, faults } = onTestClock();
    faults.goDown();
    expect(await lockError(backend.isLocked({ key: KEY }))).toMatchObject({
      code: "ServiceUnavailable",
      context: { key: KEY },
    });
    const given = observe(backend.lock(KEY, { acquisition: { timeoutMs: 1_000 } }));
    await clock.advance(1_000);
    expect(given.error).toMatchObject({ code: "ServiceUnavailable" });
    expect(given.error?.message).toMatch(/^gave up after 1000 ms and \d+ attempts: /);
    const patient = observe(backend.lock(KEY, { acquisition: { timeoutMs: 60_000 } }));
    await clock.advance(3_000);
    faults.comeUp();
    await clock.advance(30_000);
    expect(patient.value).toBeDefined();
  });

  test("heartbeats that fail are tried again until the lock ends", async () => {
    const { clock, backend, faults } = onTestClock();
    const held = await backend.lock(KEY, EXTENDING);
    faults.failNext("extend", "ServiceUnavailable", 2);
    await clock.advance(29_000);
    expect(held.signal.aborted).toBe(false);
    faults.goDown(new LockError("NetworkTimeout", "no route"));
    await clock.advance(60_000);
    expect((held.signal.reason as LockError).message).toContain("no route");
  });

  test("replies and requests that are lost", async () => {
    const { clock, backend, faults } = onTestClock();
    faults.loseReply("acquire");
    const attempt = observe(backend.acquire({ key: KEY, ttlMs: 60_000 }));
    await clock.advance(4_999);
    // The store has granted it.
    expect(await createTestBackend({ sharing: backend }).isLocked({ key: KEY })).toBe(true);
    await clock.advance(1);
    expect(attempt.error).toMatchObject({
      code: "NetworkTimeout",
      message: "Operation timed out after 5000 ms",
    });
    // What may have been granted is undone.
    expect(await backend.isLocked({ key: KEY })).toBe(false);
    const held = await backend.lock(KEY);
    faults.loseRequest("release");
    const release = observe(held.release());
    await clock.advance(5_000);
    expect(release.error).toMatchObject({ code: "NetworkTimeout" });
    expect(await backend.isLocked({ key: KEY })).toBe(true);
    expect(await backend.releaseAll()).toEqual({ released: 1, gone: 0, failed: [] });
  });

  test("a slow store, and a caller who has had enough", async () => {
    const { clock, backend, faults } = onTestClock();
    faults.delay(800);
    const controller = new AbortController();
    const slow = observe(backend.acquire({ key: KEY, ttlMs: 60_000 }));
    const given = observe(
      backend.acquire({ key: "other", ttlMs: 60_000, signal: controller.signal }),
    );
    await clock.advance(799);
    controller.abort();
    await clock.advance(1);
    expect(slow.value).toMatchObject({ ok: true });
    expect(given.error).toMatchObject({ code: "Aborted" });
    faults.clear();
    expect(await backend.isLocked({ key: "other" })).toBe(false);
  });

  test("telemetry of what went wrong", async () => {
    const { clock, backend, faults } = onTestClock();
    const events: LockEvent[] = [];
    const observed = withTelemetry(backend, { onEvent: (event) => events.push(event) });
    const held = await observed.lock(KEY, EXTENDING);
    await clock.advance(5_000);
    faults.steal(KEY);
    await clock.advance(10_000);
    await held.release();
    await clock.advance(0);
    expect(events).toMatchObject([
      { type: "acquire", result: "ok" },
      { type: "lost", result: "fail", heldMs: 10_000 },
      { type: "release", result: "fail", reason: "not-found", heldMs: 15_000, lost: true },
    ]);
  });

  test("mistakes in a test", () => {
    const { backend, faults, clock } = onTestClock();
    const wrong: (() => unknown)[] = [
      () => faults.failNext("aquire" as never),
      () => faults.failNext("acquire", "Internal", 0),
      () => faults.delay(-1),
      () => faults.steal(""),
      () => faults.steal(KEY, 0),
      () => createTestBackend({ clock: {} as never }),
      () => createTestBackend({ sharing: {} as never }),
      () => createTestBackend({ sharing: backend, clock: new TestClock() }),
      () => createTestBackend({ colck: clock } as never),
      () => createTestBackend({ operationTimeoutMs: 0 }),
    ];
    for (const each of wrong) expect(thrownLockError(each).code).toBe("InvalidArgument");
  });
});

test.each([
  ["CommonJS", ["syncguard/testing", "syncguard/common"]],
  ["CommonJS", ["syncguard/common", "syncguard/testing"]],
  ["ES modules", ["syncguard/testing", "syncguard/common"]],
  ["ES modules", ["syncguard/common", "syncguard/testing"]],
])("works beside syncguard/common without the addon: %s, %j", async (format, names) => {
  const load = format === "CommonJS" ? "require" : "await import";
  const all = names.map((name) => `${load}(${JSON.stringify(name)})`).join(", ");
  const program = `(async () => {
    const { createTestBackend, lock, hashKey, LockError } = Object.assign({}, ${all});
    const backend = createTestBackend();
    console.log(await lock(backend, async ({ fence }) => fence, { key: "job", autoExtend: true }));
    console.log((await backend.lookup({ key: "job" })) ?? hashKey("job"));
    const refused = await backend.acquire({ key: "", ttlMs: 1000 }).catch((error) => error);
    console.log(refused instanceof LockError && refused.code);
  })();`;
  const type = format === "CommonJS" ? "commonjs" : "module";
  const { stdout, stderr, code } = await runProgram(
    process.execPath,
    [`--input-type=${type}`, "-e", program],
    { SYNCGUARD_NATIVE_PATH: "/nowhere/syncguard.node" },
  );
  expect({ stderr, code }).toEqual({ stderr: "", code: 0 });
  expect(stdout.replace(/\d{15}/, "FENCE")).toBe(`FENCE\n${hashKey("job")}\nInvalidArgument\n`);
});

test("works without the addon, and then with it", async () => {
  const { stdout, stderr, code } = await run("node", "without-addon.cjs", [], {
    SYNCGUARD_NATIVE_PATH: "/nowhere/syncguard.node",
    ADDON: createRequire(import.meta.url).resolve(
      "../../npm/linux-x64-gnu/syncguard.linux-x64-gnu.node",
    ),
  });
  expect({ stderr, code }).toEqual({ stderr: "", code: 0 });
  expect(stdout.replace(/\d{15}/, "FENCE")).toBe(
    "held FENCE\ntold LockLost\nlost LockLost\nnone\nthe same hash\n",
  );
});
