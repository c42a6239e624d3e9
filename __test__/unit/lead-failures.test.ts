/** `lead()`: what fails in a term or a campaign, who hears of it, and when the next one begins. */

import { setTimeout as sleep } from "node:timers/promises";
import { expect, test, vi } from "vitest";
import { createTestBackend, TestClock } from "syncguard/testing";
import { rejection } from "../support/errors";
import { KEY, LONGEST_PAUSE_MS, member, TTL_MS, twoMembers } from "../support/members";

test("what the function throws is reported, and the pauses grow until a term ends well", async () => {
  const clock = new TestClock();
  const { terms, term, errors, running } = member(createTestBackend({ clock }));
  const pauseMs = async (): Promise<number> => {
    const startMs = clock.elapsed();
    while (running() === 0) await clock.advance(10);
    return clock.elapsed() - startMs;
  };
  await clock.advance(0);
  for (const atLeastMs of [50, 100, 200, 400, 800, 1_600, 2_500, 2_500]) {
    term().end(new Error("broken"));
    await clock.advance(0);
    const waitedMs = await pauseMs();
    expect(waitedMs).toBeGreaterThanOrEqual(atLeastMs);
    expect(waitedMs).toBeLessThanOrEqual(2 * atLeastMs + 10);
  }
  expect(errors).toEqual(Array(8).fill(["broken", { key: KEY, source: "term" }]));
  term().end();
  await clock.advance(0);
  expect(await pauseMs()).toBeLessThanOrEqual(110);
  term().end(new Error("broken"));
  await clock.advance(0);
  expect(await pauseMs()).toBeLessThanOrEqual(110);
  expect(terms).toHaveLength(11);
});

const ANSWERS: [string, (signal: AbortSignal) => Promise<unknown>][] = [
  ["the reason of the signal", async ({ reason }) => await Promise.reject(reason as Error)],
  ["an error of which that is the cause", (signal) => sleep(1e6, undefined, { signal })],
  ["an AbortError", async () => AbortSignal.abort().throwIfAborted()],
];

test.each(ANSWERS)(
  "a function that was told to end and throws %s has not failed",
  async (_, how) => {
    const { clock, backend, first } = await twoMembers();
    backend.faults.lose(KEY);
    const { end, signal } = first.term();
    end(await rejection(how(signal)));
    await clock.advance(0);
    expect([first.running(), first.errors]).toEqual([0, []]);
  },
);

test("an AbortError of a function that nobody told to end is reported", async () => {
  const { clock, first } = await twoMembers();
  first.term().end(await rejection(fetch("http://localhost", { signal: AbortSignal.abort() })));
  await clock.advance(0);
  expect(first.errors).toEqual([[expect.any(String) as string, { key: KEY, source: "term" }]]);
});

test("another failure is reported although the lock was lost, too", async () => {
  const { clock, backend, first } = await twoMembers();
  backend.faults.lose(KEY);
  first.term().end(new Error("broken"));
  await clock.advance(0);
  expect(first.errors).toEqual([["broken", { key: KEY, source: "term" }]]);
});

test("a store that is down is reported, and led on when it is back", async () => {
  const clock = new TestClock();
  const backend = createTestBackend({ clock });
  backend.faults.goDown();
  const { errors, running } = member(backend);
  await clock.advance(60_000);
  // A report for each ten seconds.
  expect(errors.length).toBeGreaterThanOrEqual(4);
  expect(errors.length).toBeLessThanOrEqual(6);
  expect(errors[0]).toEqual([
    expect.stringMatching(/^gave up after \d+ ms and \d+ attempts: /) as string,
    { key: KEY, source: "campaign" },
  ]);
  backend.faults.comeUp();
  await clock.advance(LONGEST_PAUSE_MS);
  expect(running()).toBe(1);
});

test("an error that waiting does not heal is reported with growing pauses, and not fatal", async () => {
  const clock = new TestClock();
  const backend = createTestBackend({ clock });
  backend.faults.goDown("AuthFailed");
  const { errors, running } = member(backend);
  await clock.advance(60_000);
  expect(errors.length).toBeGreaterThanOrEqual(14);
  expect(errors.length).toBeLessThanOrEqual(30);
  backend.faults.comeUp();
  await clock.advance(LONGEST_PAUSE_MS);
  expect(running()).toBe(1);
});

test("a leader that is cut off is told at the end of its lock, and campaigns when the store is back", async () => {
  const clock = new TestClock();
  const backend = createTestBackend({ clock, operationTimeoutMs: 1_000 });
  const onReleaseError = vi.fn();
  const { terms, term, running } = member(backend);
  await clock.advance(0);
  backend.faults.goDown();
  await clock.advance(TTL_MS);
  expect(term().signal.reason).toMatchObject({ code: "LockLost" });
  const print = vi.spyOn(console, "error").mockImplementation(onReleaseError);
  try {
    term().end();
    await clock.advance(TTL_MS);
  } finally {
    print.mockRestore();
  }
  expect(running()).toBe(0);
  backend.faults.comeUp();
  await clock.advance(LONGEST_PAUSE_MS);
  expect(running()).toBe(1);
  expect(terms).toHaveLength(2);
});

test("without onError the error is printed, in production, too", async () => {
  const print = vi.spyOn(console, "error").mockImplementation(() => undefined);
  vi.stubEnv("NODE_ENV", "production");
  try {
    const clock = new TestClock();
    const backend = createTestBackend({ clock });
    const broken = new Error("broken");
    const over = backend.lead(KEY, () => {
      throw broken;
    });
    await clock.advance(0);
    await backend.releaseAll();
    await over;
    expect(print.mock.calls).toEqual([
      ["[SyncGuard] The function of lead() has failed, and is tried again:", broken],
    ]);
  } finally {
    vi.unstubAllEnvs();
    print.mockRestore();
  }
});
