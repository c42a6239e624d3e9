// How the lock of a request ends, and how the waiting for it does.

import { createRequire } from "node:module";
import { describe, expect, test, vi } from "vitest";
import type { SyncGuardBackend } from "syncguard";
import { createAtomicLock, type ForrstResponse } from "syncguard/forrst";
import { createSqliteBackend } from "syncguard/sqlite";
import { lockError, rejection } from "../support/errors";
import { deferred } from "../support/fake-backend";
import { newKey } from "../support/suite";
import {
  charge,
  codes,
  dataOf,
  protocol,
  RELEASE,
  succeed,
  system,
  ttl,
  unreachable,
  fullKey,
} from "./requests";

const { AddonStore } = createRequire(import.meta.url)("../../dist/native/store.js") as {
  AddonStore: { prototype: Record<"perform" | "lookupByKey" | "release", () => unknown> };
};

const backend = createSqliteBackend(":memory:");
const isLocked = (key: string): Promise<boolean> => backend.isLocked({ key: fullKey(key) });

describe("the lock is released", () => {
  const { handle } = createAtomicLock(backend);

  test("when next answers with errors", async () => {
    const key = newKey();
    const failed = { protocol, id: 1, result: null, errors: [{ code: "X", message: "x" }] };
    const response = await handle(charge({ key, ttl }), () => failed);
    expect(response.errors).toBe(failed.errors);
    expect(dataOf(response)).toMatchObject({ acquired: true });
    expect(await isLocked(key)).toBe(false);
  });

  test.each([
    [
      "throws",
      (error: unknown) => {
        throw error;
      },
    ],
    ["rejects", (error: unknown) => Promise.reject(error)],
  ] as [string, (error: unknown) => Promise<ForrstResponse>][])("when next %s", async (_, fail) => {
    for (const error of [new Error("mine"), "text", undefined]) {
      const key = newKey();
      expect(await rejection(handle(charge({ key, ttl }), () => fail(error)))).toBe(error);
      expect(await isLocked(key)).toBe(false);
    }
  });

  test.each([[undefined], [null], ["text"], [[]], [{ extensions: {} }]])(
    "when next returns no response: %j",
    async (response) => {
      const key = newKey();
      const running = handle(charge({ key, ttl }), () => response as ForrstResponse);
      expect((await lockError(running)).code).toBe("InvalidArgument");
      expect(await isLocked(key)).toBe(false);
    },
  );

  test("when next is aborted, and not before it has ended", async () => {
    const key = newKey();
    const controller = new AbortController();
    const { signal } = controller;
    const [entered, left] = [deferred<undefined>(), deferred<undefined>()];
    const reason = new Error("client is gone");
    const running = handle(
      charge({ key, ttl }),
      async (_, lock) => {
        expect(lock?.signal).toBe(signal);
        entered.resolve(undefined);
        await left.promise;
        signal.throwIfAborted();
        throw new Error("not aborted");
      },
      { signal },
    );
    await entered.promise;
    controller.abort(reason);
    expect(await isLocked(key)).toBe(true);
    left.resolve(undefined);
    expect(await rejection(running)).toBe(reason);
    expect(await isLocked(key)).toBe(false);
  });

  test("not when the request keeps it, whatever next does", async () => {
    const key = newKey();
    const keeping = charge({ key, ttl, owner: "me", auto_release: false });
    const error = new Error("mine");
    expect(await rejection(handle(keeping, () => Promise.reject(error)))).toBe(error);
    expect(await isLocked(key)).toBe(true);
    const released = await handle(system(RELEASE, { key: fullKey(key), owner: "me" }), unreachable);
    expect(released.result).toEqual({ released: true, key: fullKey(key) });
  });

  test("by a release whose failure does not change the response", async () => {
    const key = newKey();
    const failure = new Error("store is gone");
    const heard: unknown[] = [];
    const broken: SyncGuardBackend = {
      ...backend,
      release: () => Promise.reject(failure),
    };
    const guarded = createAtomicLock(broken, {
      onReleaseError: (error, context) => heard.push([error, context.key, context.source]),
    });
    const response = await guarded.handle(charge({ key, ttl }), succeed);
    expect(response.result).toEqual({ status: "succeeded" });
    expect(dataOf(response)).not.toHaveProperty("lost");
    expect(heard).toEqual([[failure, fullKey(key), "disposal"]]);
  });
});

describe("a release for its owner", () => {
  /** A backend of its own with a lock that "me" has kept. */
  async function kept() {
    const own = createSqliteBackend(":memory:");
    const { handle, functions } = createAtomicLock(own);
    const key = newKey();
    await handle(charge({ key, ttl, owner: "me", auto_release: false }), succeed);
    const request = system(RELEASE, { key: fullKey(key), owner: "me" });
    const result = { released: true, key: fullKey(key) };
    return { own, key: fullKey(key), release: functions[RELEASE], request, result };
  }

  test("does not start with an aborted signal, nor on a closed backend", async () => {
    const { own, key, release, request } = await kept();
    const aborted = await lockError(release(request, { signal: AbortSignal.abort() }));
    expect(aborted).toMatchObject({ code: "Aborted", context: { key } });
    expect(await own.isLocked({ key })).toBe(true);
    await own.close();
    const closed = await lockError(release(request));
    expect(closed).toMatchObject({ code: "Aborted", context: { key } });
    expect(closed.message).toBe("the backend is closed");
  });

  test("is waited for by close()", async () => {
    const { own, release, request, result } = await kept();
    const releasing = release(request);
    await own.close();
    expect((await releasing).result).toEqual(result);
  });

  test("is one call of the addon", async () => {
    const { release, request, result } = await kept();
    const spies = (["perform", "lookupByKey", "release"] as const).map((name) =>
      vi.spyOn(AddonStore.prototype, name),
    );
    expect((await release(request)).result).toEqual(result);
    expect(spies.map(({ mock }) => mock.calls.length)).toEqual([1, 0, 0]);
    for (const spy of spies) spy.mockRestore();
  });

  test("goes through the methods that somebody has put into the backend", async () => {
    for (const name of ["lookup", "release"] as const) {
      const { own, release, request, result } = await kept();
      const spy = vi.spyOn(own, name);
      expect((await release(request)).result).toEqual(result);
      expect(spy).toHaveBeenCalledTimes(1);
    }
  });

  test("can be done with a signal", async () => {
    const { release, request, result } = await kept();
    const { signal } = new AbortController();
    expect((await release(request, { signal })).result).toEqual(result);
    expect(codes(await release(request, { signal }))).toEqual(["LOCK_NOT_FOUND"]);
  });
});

describe("waiting", () => {
  const { handle } = createAtomicLock(backend);

  test("ends with the signal", async () => {
    const key = newKey();
    await handle(charge({ key, ttl, auto_release: false }), succeed);
    const controller = new AbortController();
    const { signal } = controller;
    const block = { value: 1, unit: "hour" };
    const waiting = handle(charge({ key, ttl, block }), unreachable, { signal });
    controller.abort();
    expect((await lockError(waiting)).code).toBe("Aborted");
    const again = handle(charge({ key: newKey(), ttl }), unreachable, { signal });
    expect((await lockError(again)).code).toBe("Aborted");
  });

  test("never goes past the limit", async () => {
    const key = newKey();
    await handle(charge({ key, ttl, auto_release: false }), succeed);
    const block = { value: 150, unit: "millisecond" };
    const started = performance.now();
    const response = await handle(charge({ key, ttl, block }), unreachable);
    const tookMs = performance.now() - started;
    expect(codes(response)).toEqual(["LOCK_TIMEOUT"]);
    expect(response).not.toHaveProperty("extensions");
    expect(tookMs).toBeGreaterThan(145);
    expect(tookMs).toBeLessThan(4_500);
  });
});
