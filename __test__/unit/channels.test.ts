/** What is published on `node:diagnostics_channel`. */

import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { expect, onTestFinished, test, vi } from "vitest";
import { type DiagnosticsMessage, hashKey, lock, type LockEvent, withTelemetry } from "syncguard";
import { createSqliteBackend } from "syncguard/sqlite";
import { createTestBackend, TestClock } from "syncguard/testing";
import { lockError } from "../support/errors";

const KEY = "account:4711";
const TYPES = [
  ...["acquire", "release", "extend", "isLocked", "lookup", "forceRelease", "lost", "wait"],
] as DiagnosticsMessage["type"][];

function listen(...types: readonly DiagnosticsMessage["type"][]): DiagnosticsMessage[] {
  const messages: DiagnosticsMessage[] = [];
  const onMessage = (message: unknown): void => void messages.push(message as DiagnosticsMessage);
  for (const type of types) {
    subscribe(`syncguard:${type}`, onMessage);
    onTestFinished(() => void unsubscribe(`syncguard:${type}`, onMessage));
  }
  return messages;
}

test("each operation, with hashes and without identifiers", async () => {
  const messages = listen(...TYPES);
  const backend = createSqliteBackend();
  const held = await backend.lock(KEY, { ttlMs: 60_000 });
  await held.extend(60_000);
  await backend.acquire({ key: KEY, ttlMs: 60_000 });
  await backend.isLocked({ key: KEY });
  await backend.lookup({ lockId: held.lockId });
  await held.release();
  await backend.forceRelease(KEY);
  await lockError(backend.acquire({ key: "", ttlMs: 1 }));
  const [keyHash, lockIdHash] = [hashKey(KEY), hashKey(held.lockId)];
  const common = { backend: "sqlite", durationMs: expect.any(Number) as number };
  const waited = { waitMs: expect.any(Number) as number, attempts: 1, wakeups: 0 };
  expect(messages).toEqual([
    { ...common, ...waited, type: "acquire", result: "ok", keyHash, lockIdHash },
    { backend: "sqlite", ...waited, type: "wait", result: "ok", keyHash, lockIdHash },
    { ...common, type: "extend", result: "ok", lockIdHash },
    { ...common, type: "acquire", result: "fail", reason: "locked", keyHash },
    { ...common, type: "isLocked", result: "ok", keyHash },
    { ...common, type: "lookup", result: "ok", lockIdHash },
    { ...common, type: "release", result: "ok", lockIdHash, heldMs: expect.any(Number) as number },
    { ...common, type: "forceRelease", result: "fail", reason: "not-found", keyHash },
    { ...common, type: "acquire", result: "fail", keyHash: hashKey(""), error: "InvalidArgument" },
  ]);
  expect(JSON.stringify(messages)).not.toMatch(new RegExp(`4711|${held.lockId}`));
  await backend.close();
});

test("losses and waits", async () => {
  const messages = listen("lost", "wait");
  const clock = new TestClock();
  const backend = createTestBackend({ clock });
  await backend.lock(KEY, { ttlMs: 60_000, autoExtend: true });
  const first = lockError(
    backend.lock(KEY, { acquisition: { timeoutMs: 40_000, maxRetries: 99 } }),
  );
  const second = lockError(backend.lock(KEY, { acquisition: { timeoutMs: 3_000 } }));
  await clock.advance(10_000);
  backend.faults.steal(KEY, 600_000);
  await clock.advance(30_000);
  await Promise.all([first, second]);
  expect(messages).toMatchObject([
    { type: "wait", result: "ok" },
    { type: "wait", error: "AcquisitionTimeout", waitMs: 3_000 },
    { type: "lost", result: "fail", heldMs: 20_000, keyHash: hashKey(KEY) },
    { type: "wait", error: "AcquisitionTimeout", waitMs: 40_000 },
  ]);
});

test("of locks that were taken before anybody listened", async () => {
  const clock = new TestClock();
  const backend = createTestBackend({ clock, onLost: () => undefined });
  const [lost, released] = [await backend.lock("lost"), await backend.lock("released")];
  const messages = listen("lost", "release");
  await clock.advance(2_000);
  backend.faults.lose("lost");
  await released.release();
  expect(messages).toMatchObject([
    { type: "lost", lost: true, heldMs: 2_000, lockIdHash: hashKey(lost.lockId) },
    { type: "release", result: "ok", heldMs: 2_000, lockIdHash: hashKey(released.lockId) },
  ]);
  expect(messages[1]).not.toHaveProperty("lost");
});

test("nothing is computed while nobody listens", async () => {
  const backend = createTestBackend();
  const now = vi.spyOn(performance, "now");
  await backend.isLocked({ key: KEY });
  expect(now).not.toHaveBeenCalled();
  const messages = listen("isLocked");
  await backend.isLocked({ key: KEY });
  expect(now).toHaveBeenCalledTimes(2);
  expect(messages).toHaveLength(1);
});

test("telemetry has an event for a waiter whose turn never comes", async () => {
  const events: LockEvent[] = [];
  await using inner = createSqliteBackend(":memory:");
  const backend = withTelemetry(inner, { onEvent: (event) => events.push(event) });
  const held = await inner.lock(KEY);
  const first = lock(backend, () => 1, { key: KEY });
  const late = lockError(backend.lock(KEY, { acquisition: { timeoutMs: 50 } }));
  const controller = new AbortController();
  const cancelled = lockError(backend.lock(KEY, { signal: controller.signal }));
  await late;
  controller.abort();
  await cancelled;
  await held.release();
  await first;
  const keyHash = hashKey(KEY);
  const waitMs = expect.any(Number) as number;
  const waited = { type: "acquire", result: "fail", keyHash, wakeups: 0, waitMs };
  expect(events.filter(({ result }) => result === "fail")).toMatchObject([
    // Whose time is over asks once, wherever it stands.
    { ...waited, reason: "locked", attempts: 1 },
    { ...waited, attempts: 0 },
  ]);
});

test("every wrapper hears of a loss", async () => {
  const heard: string[] = [];
  const inner = createTestBackend();
  const one = withTelemetry(inner, { onEvent: ({ type }) => heard.push(`one ${type}`) });
  const two = withTelemetry(one, { onEvent: ({ type }) => heard.push(`two ${type}`) });
  const held = await two.lock(KEY, { autoExtend: true });
  inner.faults.lose(KEY);
  expect(held.signal.aborted).toBe(true);
  await Promise.resolve();
  expect(heard.filter((text) => text.endsWith("lost"))).toEqual(["one lost", "two lost"]);
});
