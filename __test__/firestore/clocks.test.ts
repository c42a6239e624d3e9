/** A machine whose clock is not Firestore's: what it is refused, over both transports, and what is told of that. */

import {
  afterAll,
  beforeAll,
  beforeEach,
  describe,
  expect,
  onTestFinished,
  test,
  vi,
} from "vitest";
import { createFirestoreBackend, type FirestoreBackendOptions } from "syncguard/firestore";
import { instrument } from "syncguard/otel";
import { lockError } from "../support/errors";
import { type Emulator, googleClient, startEmulator } from "../support/firestore";
import { startMeter } from "../support/meter";
import { newKey, take } from "../support/suite";

const FAR_MS = 30_000;

let emulator: Emulator;
beforeAll(async () => {
  emulator = await startEmulator();
});
afterAll(async () => {
  await emulator.stop();
});
beforeEach(async () => {
  vi.spyOn(console, "warn").mockReturnValue(undefined);
  await emulator.setClockAhead(0);
});

function open(options: FirestoreBackendOptions) {
  const db = googleClient(emulator.host);
  const backend = createFirestoreBackend(db, options);
  onTestFinished(async () => {
    await backend.close();
    await db.terminate();
  });
  return backend;
}

describe.each(["native", "client"] as const)("over transport %s", (transport) => {
  test.each([
    [-FAR_MS, "ahead of"],
    [FAR_MS, "behind"],
  ])("a clock that differs by %d ms grants and extends nothing", async (aheadMs, side) => {
    const backend = open({ transport });
    const key = newKey();
    const held = await backend.lock(key, { ttlMs: 600_000 });
    await emulator.setClockAhead(aheadMs);
    const expectRefused = async (promise: Promise<unknown>) => {
      const error = await lockError(promise);
      expect(error.code).toBe("ServiceUnavailable");
      expect(error.message).toMatch(new RegExp(`at least \\d+ ms ${side} Firestore's`));
      expect(error.message).toMatch(/synchronise it .* or set ignoreClockSkew/);
    };
    await expectRefused(backend.acquire({ key, ttlMs: 1_000 }));
    await expectRefused(backend.acquire({ claims: [newKey(), newKey()], ttlMs: 1_000 }));
    await expectRefused(backend.lock(newKey(), { acquisition: { timeoutMs: 200 } }));
    await expectRefused(held.extend(600_000));
    // Once for the backend, however often.
    expect(vi.mocked(console.warn).mock.calls).toEqual([
      [expect.stringMatching(new RegExp(`clock is at least \\d+ ms ${side} Firestore's`))],
    ]);
    // What is held can be given back.
    expect(await backend.isLocked({ key })).toBe(true);
    expect(await held.release()).toEqual({ ok: true });
    expect(await backend.isLocked({ key })).toBe(false);
  });

  test("whoever insists is granted", async () => {
    const backend = open({ transport, ignoreClockSkew: true });
    await emulator.setClockAhead(FAR_MS);
    const held = await backend.lock(newKey(), { ttlMs: 60_000 });
    expect(await held.extend(60_000)).toMatchObject({ ok: true });
    expect(await held.release()).toEqual({ ok: true });
    expect(console.warn).not.toHaveBeenCalled();
  });

  test("a lock that the clock shows as over is not taken for one", async () => {
    const backend = open({ transport, cleanupInIsLocked: true });
    const key = newKey();
    await take(backend, key, 10_000);
    // Ours is ahead.
    await emulator.setClockAhead(-FAR_MS);
    expect(await backend.isLocked({ key })).toBe(true);
    await emulator.setClockAhead(0);
    expect(await backend.isLocked({ key })).toBe(true);
  });

  test("refusals are counted", async () => {
    const { meterProvider, counted } = startMeter("syncguard.clock.refusals");
    const backend = instrument(open({ transport }), { meterProvider });
    await (await backend.lock(newKey())).release();
    expect(await counted()).toBeUndefined();
    await emulator.setClockAhead(FAR_MS);
    const keys = [newKey(), newKey()];
    for (const key of keys) await lockError(backend.acquire({ key, ttlMs: 1_000 }));
    const of = { "syncguard.backend": "firestore", "db.system.name": "gcp.firestore" };
    await vi.waitFor(async () => expect(await counted()).toEqual([{ ...of, value: 2 }]));
  });
});
