/** What telemetry, channels and warnings say of several keys, and of slots. */

import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { afterEach, expect, onTestFinished, test, vi } from "vitest";
import { type DiagnosticsMessage, hashKey, lock, type LockEvent, withTelemetry } from "syncguard";
import { createTestBackend, TestClock } from "syncguard/testing";
import { lockError } from "../support/errors";
import { settle } from "../support/until";

const keyHashes = [hashKey("a"), hashKey("b")];
const several = { claims: 2, keyHashes };
const ONCE = { acquisition: { maxRetries: 0 } };

function observed(includeRaw = false) {
  const events: LockEvent[] = [];
  const clock = new TestClock();
  const inner = createTestBackend({ clock, onLost: () => undefined });
  const onEvent = (event: LockEvent): void => void events.push(event);
  return { inner, clock, events, backend: withTelemetry(inner, { onEvent, includeRaw }) };
}

afterEach(() => {
  vi.restoreAllMocks();
});

test("one event tells of all keys, by their hashes", async () => {
  const { inner, events, backend } = observed();
  const held = await backend.lock(["a", "b"]);
  await held.extend(60_000);
  await lockError(backend.lock(["b", "a"], ONCE));
  await backend.acquire({ claims: ["a", "b"], ttlMs: 60_000 });
  await held.release();
  const again = await backend.lock(["a", "b"]);
  inner.faults.lose("b");
  await again.release();
  await settle();
  expect(events).toMatchObject([
    { type: "acquire", result: "ok", ...several, attempts: 1 },
    { type: "extend", result: "ok", claims: 2 },
    {
      type: "acquire",
      result: "fail",
      reason: "locked",
      claims: 2,
      keyHashes: [...keyHashes].reverse(),
    },
    { type: "acquire", result: "fail", reason: "locked", ...several },
    { type: "release", result: "ok", ...several, heldMs: 0 },
    { type: "acquire", result: "ok", ...several },
    { type: "lost", result: "fail", ...several },
    { type: "release", result: "fail", ...several, lost: true },
  ]);
  for (const event of events) {
    expect(event).not.toHaveProperty("keys");
    expect(event).not.toHaveProperty("key");
    expect(event).not.toHaveProperty("keyHash");
    expect(JSON.stringify(event)).not.toMatch(/"[ab]"/);
  }
});

test("keys are in events only if includeRaw allows", async () => {
  const { events, backend } = observed(true);
  await (await backend.lock(["a", "b"])).release();
  await settle();
  expect(events).toMatchObject([
    { type: "acquire", keys: ["a", "b"], ...several },
    { type: "release", keys: ["a", "b"], ...several },
  ]);
});

test("one key is told of as one, however it was asked for", async () => {
  const { inner, events, backend } = observed();
  await (await backend.lock({ key: "a", slots: 3 })).release();
  await (await backend.lock({ key: "a", slots: 3, take: 2 })).release();
  await (await backend.lock(["a"])).release();
  const attempt = await backend.acquire({ key: "a", slots: 3, ttlMs: 5_000 });
  if (attempt.ok) await attempt.release();
  const slot = await inner.lock({ key: "a", slots: 1 }, { ttlMs: 5_000 });
  await slot.release();
  await settle();
  expect(events.map(({ type }) => type)).toEqual([
    ...["acquire", "release", "acquire", "release", "acquire", "release", "acquire", "release"],
  ]);
  for (const event of events) {
    expect(event).not.toHaveProperty("keyHashes");
    if (event.type === "acquire") expect(event).toMatchObject({ keyHash: hashKey("a") });
  }
});

test("a slot that is lost is told of by its key and its lock id", async () => {
  const { clock, events, backend } = observed();
  const held = await backend.lock({ key: "a", slots: 3 }, { ttlMs: 5_000 });
  expect(held.signal.aborted).toBe(false);
  await clock.advance(5_000);
  await settle();
  expect(held.signal.reason).toMatchObject({ context: { key: "a", lockId: held.lockId } });
  expect(events.at(-1)).toMatchObject({
    ...{ type: "lost", keyHash: hashKey("a"), lockIdHash: hashKey(held.lockId), heldMs: 5_000 },
  });
});

test("wrong claims are an event, too", async () => {
  const { events, backend } = observed();
  await lockError(backend.acquire({ claims: ["a", 5, null] as never, ttlMs: 5 }));
  await lockError(backend.acquire({ claims: [] as never, ttlMs: 5 }));
  await lockError(backend.release({ lockIds: [] }));
  await settle();
  expect(events.map(({ type, result }) => `${type} ${result}`)).toEqual([
    "acquire fail",
    "acquire fail",
    "release fail",
  ]);
});

test("channels say the same", async () => {
  const messages: DiagnosticsMessage[] = [];
  const onMessage = (message: unknown): void => void messages.push(message as DiagnosticsMessage);
  for (const type of ["acquire", "wait", "release", "extend"]) {
    subscribe(`syncguard:${type}`, onMessage);
    onTestFinished(() => void unsubscribe(`syncguard:${type}`, onMessage));
  }
  const backend = createTestBackend({ clock: new TestClock() });
  const held = await backend.lock(["a", "b"]);
  await held.extend(60_000);
  await held.release();
  expect(messages).toMatchObject([
    { type: "acquire", result: "ok", ...several },
    { type: "wait", result: "ok", ...several },
    { type: "extend", result: "ok", claims: 2 },
    { type: "release", result: "ok", ...several },
  ]);
  expect(JSON.stringify(messages)).not.toMatch(/"[ab]"/);
});

test("lock() inside lock() warns where a key is in both, and of slots it does not", async () => {
  const warned = vi.spyOn(console, "warn").mockImplementation(() => undefined);
  const backend = createTestBackend();
  const acquisition = { timeoutMs: 20 };
  const inside = async (key: unknown): Promise<unknown> =>
    await lock(backend, () => lock(backend, () => "both", { key: key as string, acquisition }), {
      key: ["a", { key: "api", slots: 2 }],
    });
  expect(await inside({ key: "api", slots: 2 })).toBe("both");
  expect(await inside(["b", { key: "api", slots: 2 }])).toBe("both");
  expect(await inside("api")).toBe("both");
  expect(warned).not.toHaveBeenCalled();
  const error = await lockError(inside(["b", "a"]));
  expect(error.code).toBe("AcquisitionTimeout");
  expect(error.message).toContain("a lock() around this very call");
  expect(warned).toHaveBeenCalledTimes(1);
});
