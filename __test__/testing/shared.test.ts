/** Those who share a key in `syncguard/testing`, and who wants it alone: what real stores leave to their gate. */

import { expect, test } from "vitest";
import { createTestBackend, TestClock, type TestBackend } from "syncguard/testing";

const KEY = "catalogue";
const SHARED = { key: KEY, mode: "shared", ttlMs: 600_000 } as const;
const WAITING = { acquisition: { timeoutMs: 600_000 } } as const;

/** Two processes. */
function onTestClock() {
  const clock = new TestClock(1_000_000);
  const backend = createTestBackend({ clock, onLost: () => undefined });
  return { clock, backend, other: createTestBackend({ sharing: backend }) };
}

/** Whether somebody who asks now can share the key. */
async function joins(backend: TestBackend): Promise<boolean> {
  const reader = await backend.acquire(SHARED);
  if (reader.ok) await reader.release();
  return reader.ok;
}

/** Waits for the key for a second in vain. */
async function givesUp(backend: TestBackend): Promise<void> {
  const writing = backend.lock(KEY, { acquisition: { timeoutMs: 1_000 } });
  await expect(writing).rejects.toMatchObject({ code: "AcquisitionTimeout" });
}

test("a writer gets in among readers who overlap, and they go on when it has left", async () => {
  const { clock, backend, other } = onTestClock();
  const granted: string[] = [];
  const read = async (): Promise<void> => {
    const held = await other.lock(KEY, { mode: "shared" });
    granted.push("reader");
    clock.setTimeout(() => void held.release(), 100);
  };
  const write = async (): Promise<void> => {
    const held = await backend.lock(KEY);
    granted.push("writer");
    clock.setTimeout(() => void held.release(), 100);
  };
  const all = [read()];
  await clock.advance(60);
  all.push(write());
  for (let more = 0; more < 10; more += 1) {
    all.push(read());
    await clock.advance(60);
  }
  await clock.advance(100);
  await Promise.all(all);
  // The first, and one that came before the writer had waited for 50 ms.
  expect(granted.indexOf("writer")).toBe(2);
  expect(granted).toHaveLength(12);
});

test("a writer who gives up lets readers in at once", async () => {
  const { clock, backend, other } = onTestClock();
  await other.acquire(SHARED);
  const writing = givesUp(backend);
  await clock.advance(50);
  const reading = other.lock(KEY, { mode: "shared", ...WAITING });
  await clock.advance(949);
  expect(await joins(other)).toBe(false);
  await clock.advance(1);
  await writing;
  expect((await reading).signal.aborted).toBe(false);
});

test("a read of minutes keeps new readers away for every other minute", async () => {
  const { clock, backend, other } = onTestClock();
  const reader = await other.acquire(SHARED);
  const writing = backend.lock(KEY, WAITING);
  await clock.advance(50);
  const seen: boolean[] = [];
  for (let halfMinute = 0; halfMinute < 6; halfMinute += 1) {
    seen.push(await joins(other));
    await clock.advance(30_000);
  }
  expect(seen).toEqual([false, false, true, true, false, false]);
  if (reader.ok) await reader.release();
  expect((await writing).fence).toBeDefined();
});

test("another writer keeps new readers away when the first has given up", async () => {
  const { clock, backend, other } = onTestClock();
  await other.acquire(SHARED);
  const first = givesUp(backend);
  const second = backend.lock(KEY, WAITING);
  await clock.advance(1_000);
  await first;
  await clock.advance(50);
  expect(await joins(other)).toBe(false);
  await other.forceRelease(KEY);
  await (await second).release();
});

test("a shared lock that is lost at once is lost by each who shares it here", async () => {
  const { backend, other } = onTestClock();
  const share = async (from: TestBackend) => await from.lock(KEY, { mode: "shared" });
  const readers = [await share(backend), await share(backend)];
  const elsewhere = await share(other);
  expect(backend.faults.lose(KEY)).toBe(true);
  expect(readers.map(({ signal }) => signal.aborted)).toEqual([true, true]);
  expect(elsewhere.signal.aborted).toBe(false);
  expect(backend.faults.lose(KEY)).toBe(false);
});
