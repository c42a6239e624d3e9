/** `once()`: what it takes, and what it does with what its function does. */

import { runInNewContext } from "node:vm";
import { describe, expect, test, vi } from "vitest";
import { type LockEvent, once, setDefaultBackend, withTelemetry } from "syncguard";
import { createTestBackend, TestClock } from "syncguard/testing";
import { lockError, rejection } from "../support/errors";
import { fakeBackend } from "../support/fake-backend";

const KEY = "job:nightly";
const nothing = (): undefined => undefined;

function onTestClock() {
  const clock = new TestClock();
  const backend = createTestBackend({ clock });
  const peer = createTestBackend({ sharing: backend });
  return { clock, backend, peer };
}

describe("the arguments", () => {
  test("name the field that is wrong, and nothing of what was given", async () => {
    const { backend } = onTestClock();
    for (const [due, problem] of [
      [undefined, "due must be a Date, a number or a string"],
      [null, "due must be a Date, a number or a string"],
      [true, "due must be a Date, a number or a string"],
      [{}, "due must be a Date, a number or a string"],
      [10n, "due must be a Date, a number or a string"],
      [new Date(Number.NaN), "due must be a valid Date, or a whole number that is not negative"],
      [new Date(-1), "due must be a valid Date, or a whole number that is not negative"],
      [-1, "due must be a valid Date, or a whole number that is not negative"],
      [1.5, "due must be a valid Date, or a whole number that is not negative"],
      [Number.NaN, "due must be a valid Date, or a whole number that is not negative"],
      [2 ** 53, "due must be a valid Date, or a whole number that is not negative"],
      ["secr\u00e9t", "due must contain only printable characters of ASCII"],
    ] as const) {
      const refused = backend.once(KEY, { due: due as never }, nothing);
      const error = await lockError(refused);
      expect(error).toMatchObject({ code: "InvalidArgument", message: problem });
    }
    for (const [refused, problem] of [
      [backend.once([KEY] as never, { due: 1 }, nothing), "once() takes one key"],
      [backend.once(KEY, undefined as never, nothing), "options must be an object"],
      [backend.once(KEY, nothing as never, nothing), "once(key, { due }, fn)"],
      [backend.once(KEY, { due: 1 }, undefined as never), "fn must be a function"],
      [backend.once(KEY, { due: 1, ttl: 1 } as never, nothing), "once() has no option ttl"],
      [backend.once(KEY, { due: 1, ttlMs: 0 }, nothing), "ttlMs must be a positive integer"],
      [backend.once("", { due: 1 }, nothing), "Key must not be empty"],
    ] as const) {
      const error = await lockError(refused);
      expect(error.code).toBe("InvalidArgument");
      expect(error.message).toContain(problem);
    }
    expect(await backend.isLocked({ key: KEY })).toBe(false);
  });

  test("a backend of users' own cannot store what is done", async () => {
    for (const own of [fakeBackend(), withTelemetry(fakeBackend(), { onEvent: nothing })]) {
      const error = await lockError(once(own, KEY, { due: 1 }, nothing));
      expect(error.code).toBe("InvalidArgument");
      expect(error.message).toContain("needs a backend of this package");
    }
  });

  test("a moment is its milliseconds, however it is given", async () => {
    const { backend } = onTestClock();
    const at = new Date("2026-11-24T06:00:00Z");
    expect(await backend.once(KEY, { due: at }, () => 1)).toEqual({ ran: true, value: 1 });
    for (const [reason, dues] of [
      ["done", [at, at.getTime(), String(at.getTime())]],
      ["ahead", [at.getTime() - 1, 0]],
    ] as const) {
      for (const due of dues) {
        const refused = await backend.once(KEY, { due }, () => 2);
        expect(refused).toMatchObject({ reason, lastDue: String(at.getTime()) });
      }
    }
    const error = await lockError(backend.once(KEY, { due: at.toISOString() }, () => 3));
    expect(error).toMatchObject({ code: "InvalidArgument" });
    expect(error.message).toContain("due is a number where a text is stored");
    expect(await backend.once(KEY, { due: at.getTime() + 1 }, () => 4)).toMatchObject({
      ran: true,
    });
  });
});

describe("a period that is named by a date", () => {
  // 2026-11-27T12:00Z
  const NOW_MS = 1_795_780_800_000;
  const at = (clock: TestClock) => createTestBackend({ clock });

  test.each([
    new Date(NOW_MS + 86_400_001),
    String(NOW_MS + 86_400_001),
    ...["2026-11-29", "2026-11-28T12:01Z", "2026-11-28 12:00:00-00:01"],
    ...["2027-11-27", "20271127", "2026-12", "2026-W49", "2027-W01"],
  ])("is refused more than a day ahead, unless that is asked for: %s", async (due) => {
    const backend = at(new TestClock(NOW_MS));
    const error = await lockError(backend.once(KEY, { due }, () => 1));
    expect(error).toMatchObject({ code: "InvalidArgument" });
    expect(error.message).toContain("allowAhead");
    expect(await backend.isLocked({ key: KEY })).toBe(false);
    expect(await backend.once(KEY, { due, allowAhead: true }, () => 2)).toMatchObject({
      value: 2,
    });
  });

  test.each([
    ...[new Date(NOW_MS + 86_400_000), "1795867200000", "2026-11-28", "2026-11-28T12:00Z"],
    ...["2026-11-28T14:00+02:00", "20261128", "2026-11", "2026-W48", "42", "20271127235959"],
    ...["v2027-11-27", "report"],
  ])("runs up to a day ahead, and what is no date always: %s", async (due) => {
    const backend = at(new TestClock(NOW_MS));
    expect(await backend.once(KEY, { due }, () => 1)).toEqual({ ran: true, value: 1 });
  });

  test("is done again in the hour that comes twice, if it has an offset", async () => {
    const backend = at(new TestClock(NOW_MS));
    for (const due of ["2026-10-25T02:00+02:00", "2026-10-25T02:00+01:00"]) {
      expect(await backend.once(KEY, { due }, () => 1)).toMatchObject({ ran: true });
    }
  });

  test("is warned of if it is a time without one", async () => {
    const warnings: unknown[] = [];
    const emit = vi.spyOn(process, "emitWarning");
    emit.mockImplementation((...args: unknown[]) => void warnings.push(args[1]));
    const backend = at(new TestClock(NOW_MS));
    await backend.once(KEY, { due: "2026-10-24" }, nothing);
    await backend.once(KEY, { due: "2026-10-25T02:00Z" }, nothing);
    expect(warnings).toEqual([]);
    for (const due of ["2026-10-26 02:00", "2026-10-27 02:00"]) {
      await backend.once(KEY, { due }, nothing);
    }
    emit.mockRestore();
    expect(warnings).toMatchObject([{ code: "SYNCGUARD_LOCAL_PERIOD" }]);
  });

  test("is told of as ahead if a later one is done", async () => {
    const backend = at(new TestClock(NOW_MS));
    const events: LockEvent[] = [];
    const observed = withTelemetry(backend, { onEvent: (event) => events.push(event) });
    await backend.once(KEY, { due: "2027-11-27", allowAhead: true }, nothing);
    expect(await once(observed, KEY, { due: "2026-11-27" }, nothing)).toEqual({
      ...{ ran: false, reason: "ahead" },
      ...{ doneAt: new Date(NOW_MS), lastDue: "2027-11-27" },
    });
    expect(events).toMatchObject([{ type: "acquire", result: "fail", reason: "ahead" }]);
  });
});

describe("the function", () => {
  test("gets the handle, and its value is the result's", async () => {
    const { clock, backend, peer } = onTestClock();
    const doneAt = new Date(clock.now());
    const ran = await backend.once(KEY, { due: 1, owner: "me" }, async (handle) => {
      expect(handle).toMatchObject({ key: KEY, expiresAtMs: clock.now() + 30_000 });
      expect(handle.fence).toMatch(/^\d{15}$/);
      expect(handle.signal.aborted).toBe(false);
      expect(await peer.once(KEY, { due: 1 }, nothing)).toEqual({ ran: false, reason: "running" });
      expect(await handle.extend(60_000)).toMatchObject({ ok: true });
      return "value";
    });
    expect(ran).toEqual({ ran: true, value: "value" });
    expect(await backend.isLocked({ key: KEY })).toBe(false);
    await clock.advance(1_000);
    for (const other of [backend, peer]) {
      const refused = await other.once(KEY, { due: 1 }, nothing);
      expect(refused).toEqual({ ran: false, reason: "done", doneAt, lastDue: "1" });
    }
  });

  test("leaves the period open when it throws, and frees the lock at once", async () => {
    const { backend, peer } = onTestClock();
    const failure = new Error("no paper");
    const failed = backend.once(KEY, { due: 1 }, () => {
      throw failure;
    });
    expect(await rejection(failed)).toBe(failure);
    expect(await peer.once(KEY, { due: 1 }, () => 2)).toEqual({ ran: true, value: 2 });
  });

  test("leaves the period open when its process dies: another does it after the TTL", async () => {
    const { clock, backend, peer } = onTestClock();
    void backend.once(KEY, { due: 1, ttlMs: 5_000 }, () => new Promise(() => undefined));
    await clock.advance(0);
    expect(await peer.once(KEY, { due: 1 }, nothing)).toEqual({ ran: false, reason: "running" });
    await clock.advance(6_000);
    expect(await peer.once(KEY, { due: 1 }, () => 2)).toEqual({ ran: true, value: 2 });
  });

  test("is not done when the lock was lost meanwhile, and nothing is stored", async () => {
    for (const lose of ["steal", "expire", "forceRelease"] as const) {
      const { backend, peer } = onTestClock();
      const losses: unknown[] = [];
      const options = { due: 1, onLost: (error: unknown) => void losses.push(error) };
      const lost = backend.once(KEY, options, async () => {
        if (lose === "steal") backend.faults.steal(KEY);
        else if (lose === "expire") backend.faults.expire(KEY);
        else await peer.forceRelease(KEY);
      });
      expect(await lockError(lost)).toMatchObject({ code: "LockLost" });
      expect(losses).toHaveLength(1);
      await peer.forceRelease(KEY);
      expect(await peer.once(KEY, { due: 1 }, () => 2)).toEqual({ ran: true, value: 2 });
    }
  });

  test("is told by its signal, and by the caller's, that it is in vain", async () => {
    const { clock, backend } = onTestClock();
    const controller = new AbortController();
    const ran = await backend.once(KEY, { due: 1, signal: controller.signal }, ({ signal }) => {
      controller.abort("enough");
      return signal.reason as unknown;
    });
    // Once it has ended well, it is done.
    expect(ran).toEqual({ ran: true, value: "enough" });
    const late = backend.once(
      KEY,
      { due: 2, ttlMs: 1_000, onLost: nothing },
      async ({ signal }) => {
        await clock.advance(1_000);
        expect(signal.aborted).toBe(true);
      },
    );
    expect(await lockError(late)).toMatchObject({ code: "LockLost" });
    const aborted = AbortSignal.abort();
    const refused = backend.once(KEY, { due: 2, signal: aborted }, nothing);
    expect(await lockError(refused)).toMatchObject({ code: "Aborted" });
  });

  test("extends its lock for as long as it runs", async () => {
    const { clock, backend, peer } = onTestClock();
    const ran = backend.once(KEY, { due: 1, ttlMs: 3_000, autoExtend: true }, async () => {
      await clock.advance(10_000);
      expect(await peer.isLocked({ key: KEY })).toBe(true);
    });
    expect(await ran).toMatchObject({ ran: true });
  });
});

test("a release whose answer is lost fails, and says so; the period may be done", async () => {
  const { clock, backend, peer } = onTestClock();
  backend.faults.loseReply("release");
  const failed = backend.once(KEY, { due: 1 }, () => 1);
  const outcome = lockError(failed);
  await clock.advance(5_000);
  expect(await outcome).toMatchObject({ code: "NetworkTimeout" });
  expect(await peer.once(KEY, { due: 1 }, () => 2)).toMatchObject({ reason: "done" });
});

test("telemetry tells of what was done before as of a lock that is held", async () => {
  const { backend } = onTestClock();
  const events: LockEvent[] = [];
  const observed = withTelemetry(backend, { onEvent: (event) => events.push(event) });
  await observed.once(KEY, { due: 1 }, nothing);
  await observed.once(KEY, { due: 1 }, nothing);
  await Promise.resolve();
  expect(events.map(({ type, result, reason }) => [type, result, reason])).toEqual([
    ["acquire", "ok", undefined],
    ["release", "ok", undefined],
    ["acquire", "fail", "done"],
  ]);
});

test("without a backend, the default one is asked", async () => {
  const { backend } = onTestClock();
  setDefaultBackend(backend);
  try {
    expect(await once(KEY, { due: 1 }, () => 1)).toEqual({ ran: true, value: 1 });
    expect(await backend.once(KEY, { due: 1 }, () => 1)).toMatchObject({ reason: "done" });
  } finally {
    setDefaultBackend(undefined);
  }
});

test("a Date of another realm is a date: Jest's tests have a realm of their own", async () => {
  const foreign = runInNewContext("new Date(1234)") as Date;
  expect(foreign).not.toBeInstanceOf(Date);
  const backend = createTestBackend();
  expect(await backend.once("realm", { due: foreign }, () => 1)).toMatchObject({ ran: true });
  expect(await backend.once("realm", { due: new Date(1234) }, () => 1)).toMatchObject({
    ran: false,
    lastDue: "1234",
  });
  const invalidDate = runInNewContext("new Date(NaN)") as Date;
  expect(await lockError(backend.once("realm", { due: invalidDate }, () => 1))).toMatchObject({
    message: "due must be a valid Date, or a whole number that is not negative",
  });
});
