/** `using()` of redlock's class: overrides of what it calls, and what is told of a lock that is lost. */

import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test, vi } from "vitest";
import * as ours from "syncguard/redlock";
import { createTestBackend } from "syncguard/testing";
import { rejection } from "../support/errors";
import { newKey } from "../support/suite";
import { until } from "../support/until";

const { ExecutionError, Redlock } = ours;
const ONCE = { retryCount: 0 };
const LONG_MS = 60_000;

describe("a subclass", () => {
  /** What is called, in that order. */
  class Counting extends Redlock {
    readonly calls: string[] = [];
    override async acquire(...args: Parameters<ours.Redlock["acquire"]>): Promise<ours.Lock> {
      this.calls.push("acquire");
      const [resources, ...more] = args;
      return await super.acquire(
        resources.map((name) => `tenant:${name}`),
        ...more,
      );
    }
    override async release(...args: Parameters<ours.Redlock["release"]>) {
      this.calls.push("release");
      return await super.release(...args);
    }
  }

  test("has its acquire() and release() called by using(), which keeps what they lock", async () => {
    const backend = createTestBackend({ onLost: () => undefined });
    const redlock = new Counting([backend], { automaticExtensionThreshold: 1_100 });
    const resource = newKey();
    const isLocked = () => backend.isLocked({ key: `tenant:${resource}` });
    const seen = await redlock.using([resource], 1_500, async (signal) => {
      // Past the duration and the tolerance.
      await sleep(2_800);
      return [await isLocked(), await backend.isLocked({ key: resource }), signal.aborted];
    });
    expect(seen).toEqual([true, false, false]);
    expect(await isLocked()).toBe(false);
    expect(redlock.calls).toEqual(["acquire", "release"]);
  });

  test("may take the lock elsewhere: then its own extend() keeps it", async () => {
    const [here, there] = [createTestBackend(), createTestBackend()];
    const elsewhere = new Redlock([there]);
    class Elsewhere extends Redlock {
      override async acquire(resources: string[], duration: number): Promise<ours.Lock> {
        return await elsewhere.acquire(resources, duration);
      }
    }
    const extend = vi.spyOn(elsewhere, "extend");
    const resource = newKey();
    const isLocked = () => there.isLocked({ key: resource });
    const redlock = new Elsewhere([here], { automaticExtensionThreshold: 1_100 });
    const seen = await redlock.using([resource], 1_500, async (signal) => {
      await until(() => extend.mock.calls.length >= 7);
      return [await isLocked(), signal.aborted];
    });
    expect(seen).toEqual([true, false]);
    expect(await isLocked()).toBe(false);
    // And is told when that fails.
    const error = await rejection(
      redlock.using([resource], 1_500, async (signal) => {
        await there.forceRelease(resource);
        await until(() => signal.aborted);
        expect(signal.error).toBeInstanceOf(ExecutionError);
      }),
    );
    expect(error).toMatchObject({ cause: { code: "LockLost" } });
  });

  test("that fails after its lock was granted leaves none that extends itself", async () => {
    const backend = createTestBackend();
    const mine = new Error("mine");
    class Failing extends Redlock {
      override async acquire(...args: Parameters<ours.Redlock["acquire"]>): Promise<ours.Lock> {
        await (await super.acquire(...args)).release();
        throw mine;
      }
    }
    const resources = [newKey()];
    const using = new Failing([backend]).using(resources, 5_000, async () => await settled(1));
    expect(await rejection(using)).toBe(mine);
    await (await new Redlock([backend]).acquire(resources, LONG_MS, ONCE)).release();
  });
});

describe("one error event for one loss", () => {
  const quiet = () => createTestBackend({ onLost: () => undefined });
  const listening = (backend: ReturnType<typeof quiet>) => {
    const told: unknown[] = [];
    return { told, redlock: new Redlock([backend]).on("error", (error) => told.push(error)) };
  };

  test.each([
    ["that the routine sees, whether it reads the error or not", true],
    ["that only the release finds", false],
  ])("%s", async (_, sees) => {
    const backend = quiet();
    const { told, redlock } = listening(backend);
    const resource = newKey();
    const seen: unknown[] = [];
    const error = (await rejection(
      redlock.using([resource], 1_000, async (signal) => {
        await backend.forceRelease(resource);
        if (!sees) return;
        await until(() => signal.aborted);
        seen.push(signal.error, signal.error);
      }),
    )) as Error;
    expect(error).toBeInstanceOf(ExecutionError);
    expect(error.cause).toMatchObject({ code: "LockLost" });
    expect(told).toEqual([error.cause]);
    for (const one of seen) expect(one).toBe(error);
  });

  test("also if the routine throws what the signal says", async () => {
    const backend = quiet();
    const { told, redlock } = listening(backend);
    const resource = newKey();
    const error = (await rejection(
      redlock.using([resource], 1_000, async (signal) => {
        await backend.forceRelease(resource);
        await until(() => signal.aborted);
        throw signal.error as Error;
      }),
    )) as Error;
    expect(error).toBeInstanceOf(ExecutionError);
    expect(told).toEqual([error.cause]);
  });

  test("of a release that fails, and the result is that of the routine", async () => {
    const backend = quiet();
    const { told, redlock } = listening(backend);
    const result = redlock.using([newKey()], 5_000, async () => {
      backend.faults.failNext("release", "AuthFailed");
      return await settled(42);
    });
    expect(await result).toBe(42);
    expect(told).toMatchObject([{ code: "AuthFailed" }]);
  });
});

async function settled<T>(value: T): Promise<T> {
  return await Promise.resolve(value);
}
