/** `lead()`: one leader at a time, one term after another. */

import { describe, expect, test, vi } from "vitest";
import { getByKeyRaw, lead, lock, type LockError, withTelemetry } from "syncguard";
import { createTestBackend, TestClock } from "syncguard/testing";
import { lockError } from "../support/errors";
import { fakeBackend, LOCKED, scripted } from "../support/fake-backend";
import { KEY, LONGEST_PAUSE_MS, member, TTL_MS, twoMembers } from "../support/members";
import { until } from "../support/until";

test("wrong arguments are refused before anything starts, and named", async () => {
  const backend = createTestBackend();
  const acquire = vi.spyOn(backend, "acquire");
  const wrong: [unknown, string][] = [
    [[], "options must be an object"],
    [{ ttlMs: 0 }, "ttlMs must be a positive integer"],
    [{ owner: "" }, "owner must not be empty"],
    [{ signal: {} }, "signal must be an AbortSignal"],
    [{ autoExtend: false }, "autoExtend must not be false: leaders extend locks"],
    [
      { ttlMs: 1_000, autoExtend: { everyMs: 1_000 } },
      "autoExtend.everyMs must be less than ttlMs",
    ],
    [{ onError: 1 }, "onError must be a function"],
    [{ onLost: 1 }, "onLost must be a function"],
    [{ onLoss: () => 1 }, "lead() has no option onLoss: did you mean onLost?"],
  ];
  for (const [options, message] of wrong) {
    const refused = backend.lead(KEY, () => 1, options as never);
    expect(await lockError(refused)).toMatchObject({ code: "InvalidArgument", message });
  }
  expect(await lockError(backend.lead(KEY, 1 as never))).toMatchObject({
    code: "InvalidArgument",
    message: "fn must be a function",
  });
  expect(await lockError(backend.lead("", () => 1))).toMatchObject({ code: "InvalidArgument" });
  expect(await lockError(lead({} as never, KEY, () => 1))).toMatchObject({
    message: "backend must be a LockBackend",
  });
  expect(acquire).not.toHaveBeenCalled();
});

test("the function leads for as long as it wants, and others see who that is", async () => {
  const { clock, backend, first, second } = await twoMembers();
  await clock.advance(10 * TTL_MS);
  expect([first.running(), second.running()]).toEqual([1, 0]);
  const { key, term, fence, signal } = first.term();
  expect(key).toBe(KEY);
  expect(signal.aborted).toBe(false);
  expect(fence).toBe(String(term).padStart(15, "0"));
  expect(await getByKeyRaw(backend, KEY)).toMatchObject({
    fence,
    owner: expect.stringMatching(new RegExp(`^.+:${process.pid}$`)) as string,
  });
});

test("a term that has ended by itself lets others come first, and the process campaigns again", async () => {
  const { clock, first, second } = await twoMembers({ owner: "north" });
  first.term().end();
  await clock.advance(0);
  expect([first.running(), second.running()]).toEqual([0, 1]);
  expect(second.term().term).toBeGreaterThan(first.terms[0]?.term ?? Infinity);
  await clock.advance(LONGEST_PAUSE_MS);
  second.term().end();
  await clock.advance(0);
  expect([first.running(), second.running()]).toEqual([1, 0]);
  expect([first.errors, second.errors]).toEqual([[], []]);
});

test("alone, it leads again after a pause", async () => {
  const clock = new TestClock();
  const { terms, term, running } = member(createTestBackend({ clock }));
  await clock.advance(0);
  term().end();
  await clock.advance(49);
  expect(running()).toBe(0);
  await clock.advance(51);
  expect(running()).toBe(1);
  expect(terms).toHaveLength(2);
});

test("a lost lock aborts the signal; no other term starts here before the function has settled", async () => {
  const { clock, backend, other, first, second } = await twoMembers();
  const lost = first.term();
  backend.faults.expire(KEY);
  await clock.advance(TTL_MS);
  // The other process leads, and this function is told and takes its time.
  expect(lost.signal.aborted).toBe(true);
  expect(lost.signal.reason).toMatchObject({ code: "LockLost" });
  expect(first.losses).toEqual([lost.signal.reason]);
  expect(second.running()).toBe(1);
  await other.releaseAll();
  await clock.advance(60_000);
  expect(first.terms).toHaveLength(1);
  lost.end();
  await clock.advance(0);
  expect(first.terms).toHaveLength(2);
  expect(first.errors).toEqual([]);
});

test("options.signal ends the term once the function has settled, and nobody else leads before", async () => {
  const stopping = new AbortController();
  const { clock, first, second } = await twoMembers({ signal: stopping.signal });
  stopping.abort("deployed");
  expect(first.term().signal.aborted).toBe(true);
  expect(first.term().signal.reason).toBe("deployed");
  await clock.advance(3 * TTL_MS);
  expect([first.running(), second.running()]).toEqual([1, 0]);
  first.term().end();
  await clock.advance(0);
  expect([first.running(), second.running()]).toEqual([0, 1]);
  await first.over;
  expect([first.errors, first.losses]).toEqual([[], []]);
});

test("options.signal ends a campaign at once, and a pause", async () => {
  const { clock, backend } = await twoMembers();
  const stopping = new AbortController();
  const waiting = member(createTestBackend({ sharing: backend }), { signal: stopping.signal });
  const pausing = member(createTestBackend({ clock }), { signal: stopping.signal });
  await clock.advance(0);
  pausing.term().end();
  await clock.advance(0);
  stopping.abort();
  await Promise.all([waiting.over, pausing.over]);
  expect([waiting.terms.length, pausing.terms.length]).toEqual([0, 1]);
});

test("releaseAll() hands over at once, and lead() is over when the function has settled", async () => {
  const { clock, backend, first, second } = await twoMembers();
  const release = vi.spyOn(backend, "release");
  const result = await backend.releaseAll();
  expect(result).toEqual({ released: 1, gone: 0, failed: [] });
  await clock.advance(0);
  expect(first.term().signal.reason).toMatchObject({ code: "LockLost" });
  expect([first.running(), second.running()]).toEqual([1, 1]);
  await backend.close();
  first.term().end(first.term().signal.reason);
  await first.over;
  // It is not released a second time, and nobody is told of a failure.
  expect(release).toHaveBeenCalledTimes(1);
  expect([first.errors, first.losses.length]).toEqual([[], 1]);
  expect(second.term().signal.aborted).toBe(false);
});

test.each(["releaseAll", "close"] as const)("%s() ends who waits, and who pauses", async (how) => {
  const { clock, other, first, second } = await twoMembers();
  await other[how]();
  await second.over;
  expect(second.terms).toEqual([]);
  const alone = createTestBackend({ clock });
  const pausing = member(alone);
  await clock.advance(0);
  pausing.term().end(new Error("broken"));
  await clock.advance(0);
  expect(pausing.running()).toBe(0);
  await alone[how]();
  await pausing.over;
  await lead(alone, KEY, () => expect.unreachable());
  expect(first.running()).toBe(1);
});

test("a follower asks every few seconds, however long somebody else leads", async () => {
  const { clock, backend, other } = await twoMembers({ ttlMs: 60_000 });
  let asked = 0;
  const observed = withTelemetry(other, {
    onEvent: ({ type, attempts = 0 }) => {
      if (type === "acquire") asked += attempts;
    },
  });
  const stopping = new AbortController();
  const over = observed.lead(KEY, () => expect.unreachable(), { signal: stopping.signal });
  await clock.advance(10 * 60_000);
  stopping.abort();
  await over;
  expect(asked).toBeGreaterThan((10 * 60_000) / LONGEST_PAUSE_MS);
  expect(asked).toBeLessThan((10 * 60_000) / 1_500);
  expect(await backend.isLocked({ key: KEY })).toBe(true);
});

test("maxMs of autoExtend limits a term", async () => {
  const { clock, first, second } = await twoMembers({ autoExtend: { maxMs: 20_000 } });
  await clock.advance(20_000);
  expect(first.term().signal.reason).toMatchObject({ code: "LockLost" });
  first.term().end();
  await clock.advance(LONGEST_PAUSE_MS);
  expect(first.running() + second.running()).toBe(1);
});

test("a backend of one's own is campaigned for, too", async () => {
  vi.useFakeTimers();
  try {
    const backend = fakeBackend();
    const stopping = new AbortController();
    const terms: number[] = [];
    const over = lead(
      backend,
      KEY,
      async ({ term, signal }) => {
        terms.push(term);
        if (terms.length === 3) stopping.abort();
        signal.throwIfAborted();
      },
      { signal: stopping.signal },
    );
    await vi.advanceTimersByTimeAsync(1_000);
    await over;
    expect(terms).toEqual([1, 2, 3]);
    expect(backend.held.size).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
    const refused = scripted(LOCKED, new Error("out of order"));
    const reports: unknown[] = [];
    const again = new AbortController();
    const campaign = lead(refused, KEY, () => expect.unreachable(), {
      signal: again.signal,
      onError: (error) => reports.push((error as Error).message),
    });
    await vi.advanceTimersByTimeAsync(1_000);
    again.abort();
    await campaign;
    expect(reports[0]).toBe("out of order");
  } finally {
    vi.useRealTimers();
  }
});

test("a backend without fences gives its leader none", async () => {
  const plain = fakeBackend({
    capabilities: { supportsFencing: false, timeAuthority: "client" } as never,
    acquire: async ({ ttlMs }) =>
      ({ ok: true, lockId: "lock-id", expiresAtMs: Date.now() + ttlMs }) as never,
  });
  const stopping = new AbortController();
  let given = {};
  const work = (leadership: object): void => {
    given = leadership;
    stopping.abort();
  };
  const onLost = (): void => undefined;
  await lead(plain, KEY, work, { signal: stopping.signal, onLost });
  expect(Object.keys(given)).toEqual(["key", "signal", "assertHeld"]);
});

test("what wraps a backend hears of the operations of its leader", async () => {
  const backend = createTestBackend();
  const seen: string[] = [];
  const observed = withTelemetry(backend, {
    onEvent: ({ type, result }) => seen.push(`${type} ${result}`),
  });
  const stopping = new AbortController();
  await observed.lead(KEY, () => stopping.abort(), { signal: stopping.signal });
  await until(() => seen.length >= 2);
  expect(seen).toEqual(["acquire ok", "release ok"]);
});

describe("who waits for its own key is told so", () => {
  const INSIDE =
    /a lock\(\) around this very call, (or the term of a lead\(\)|which shares the key)/;
  /** A backend on a clock of its own, and what `lead()` inside of something is told. */
  function nested() {
    vi.spyOn(console, "warn").mockImplementation(() => undefined);
    const clock = new TestClock();
    const backend = createTestBackend({ clock });
    const stop = new AbortController();
    const told: [unknown, { source: string }][] = [];
    const inner = () =>
      backend.lead(KEY, () => undefined, {
        signal: stop.signal,
        onError: (error, context) => told.push([error, context]),
      });
    return { backend, clock, inner, stop, told };
  }
  const isTold = (told: [unknown, object][]): void => {
    expect(told).toEqual([
      [expect.objectContaining({ code: "AcquisitionTimeout" }), { key: KEY, source: "campaign" }],
    ]);
    expect((told[0]?.[0] as Error).message).toMatch(INSIDE);
  };

  test.each(["exclusive", "shared"] as const)(
    "lead() inside an %s lock(), once, however long it waits",
    async (mode) => {
      const { backend, clock, inner, stop, told } = nested();
      const config = { key: KEY, mode, ttlMs: TTL_MS, autoExtend: true };
      const outer = lock(backend, inner, config);
      await clock.advance(60_000);
      isTold(told);
      stop.abort();
      await clock.advance(0);
      await outer;
    },
  );

  test("lead() inside the term of lead(), and inside once()", async () => {
    for (const around of ["lead", "once"] as const) {
      const { backend, clock, inner, stop, told } = nested();
      const { signal } = stop;
      const over =
        around === "lead"
          ? backend.lead(KEY, inner, { signal })
          : backend.once(KEY, { due: 1, autoExtend: true }, inner);
      await clock.advance(60_000);
      isTold(told);
      stop.abort();
      await clock.advance(0);
      await over;
    }
  });

  test("lock() inside the term of lead()", async () => {
    const { backend, clock, stop } = nested();
    const { signal } = stop;
    let error: LockError | undefined;
    const over = backend.lead(
      KEY,
      async () => {
        error = await lockError(lock(backend, () => 1, { key: KEY }));
        stop.abort();
      },
      { signal },
    );
    await clock.advance(10_000);
    await over;
    expect(error).toMatchObject({ code: "AcquisitionTimeout" });
    expect(error?.message).toMatch(INSIDE);
  });

  test("and nobody who only follows, or whose outer lock has ended", async () => {
    const { backend, clock, inner, stop, told } = nested();
    const other = await backend.lock("other", { ttlMs: TTL_MS, autoExtend: true });
    const holder = await backend.lock(KEY, { ttlMs: TTL_MS, autoExtend: true });
    const follower = inner();
    let started: Promise<void> | undefined;
    // It outlives the function that has started it.
    await lock(backend, () => void (started = inner()), { key: "third" });
    await clock.advance(60_000);
    expect(told).toEqual([]);
    stop.abort();
    await clock.advance(0);
    await Promise.all([follower, started, holder.release(), other.release()]);
  });
});
