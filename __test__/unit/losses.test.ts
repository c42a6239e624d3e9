/** A lock that is lost while its work runs is never silent. */

import { createRequire } from "node:module";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { beforeEach, describe, expect, test, vi } from "vitest";
import {
  generateLockId,
  lock,
  LockError,
  type OnLost,
  type SyncGuardBackend,
  withTelemetry,
} from "syncguard";
import { createTestBackend, TestClock } from "syncguard/testing";
import { lockError, rejection } from "../support/errors";
import { deferred, fakeBackend } from "../support/fake-backend";
import { settle, until } from "../support/until";

const { createBackend } = createRequire(import.meta.url)(
  "../../dist/backend/native-backend.js",
) as {
  createBackend: (store: unknown, options: object) => SyncGuardBackend;
};

const KEY = "account:4711";

const spy = () => vi.spyOn(console, "error").mockImplementation(() => undefined);
let log: ReturnType<typeof spy>;
beforeEach(() => {
  vi.stubEnv("NODE_ENV", "development");
  log = spy();
});

/** A backend whose locks extend themselves each second, and what takes one away and lets that be noticed. */
function stage(options: { onLost?: OnLost } = {}) {
  const clock = new TestClock();
  const backend = createTestBackend({ clock, ...options });
  const lose = async (key = KEY): Promise<void> => {
    backend.faults.steal(key);
    await clock.advance(1_000);
  };
  return { backend, clock, lose };
}
const EXTENDING = { ttlMs: 3_000, autoExtend: { everyMs: 1_000 } };

describe("a lock that is lost", () => {
  test("is printed once, without its key and its lock id", async () => {
    const { backend, lose } = stage();
    await lock(backend, () => lose(), { key: KEY, ...EXTENDING });
    expect(log.mock.calls).toEqual([
      [
        "[SyncGuard] A lock was lost while it was held:",
        { error: "the lock was lost: the store no longer has it", errorName: "LockError" },
      ],
    ]);
  });

  test("is told to whoever has asked to hear of it, when it is found out by its id", async () => {
    const { backend } = stage();
    const told: string[] = [];
    const onLost: OnLost = ({ message }, { key }) => void told.push(`${key}: ${message}`);
    const [heard, unheard] = [
      await backend.lock("heard", { onLost }),
      await backend.lock("unheard"),
    ];
    for (const { key, lockId } of [heard, unheard]) {
      await backend.forceRelease(key);
      await backend.extend({ lockId, ttlMs: 3_000 });
    }
    expect(told).toEqual(["heard: the lock was lost: the store no longer has it"]);
    expect(log).not.toHaveBeenCalled();
  });

  test("is printed without the keys of several, and whole words only are left out", async () => {
    const { backend, clock } = stage();
    // The message has each of these as a part of a word, or as a short word.
    for (const key of ["w", "lost", "a", "time", "ever"]) {
      const held = await backend.lock([key, `${key}:${KEY}`], { ttlMs: 1_000 });
      const { signal } = held;
      await clock.advance(1_000);
      expect(signal.aborted).toBe(true);
    }
    expect(log.mock.calls.map(([, { error }]) => error as unknown)).toEqual([
      "the lock was lost: its time is over",
      "the lock was [key]: its time is over",
      "the lock was lost: its time is over",
      "the lock was lost: its [key] is over",
      "the lock was lost: its time is over",
    ]);
    log.mockClear();
    const message = `no ${KEY}, x${KEY} nor lost:${KEY}`;
    backend.faults.failNext("release", new LockError("Internal", message));
    await (await backend.lock(["first", KEY]))[Symbol.asyncDispose]();
    expect(log.mock.calls[0]?.[1]).toMatchObject({ error: `no [key], x${KEY} nor lost:[key]` });
  });

  test("is printed for handles, too, also through wrappers", async () => {
    const { backend, lose } = stage();
    const wrapped = withTelemetry(backend, { onEvent: () => undefined });
    for (const [index, one] of [backend, wrapped].entries()) {
      const held = await one.lock(`key ${index}`, EXTENDING);
      await lose(`key ${index}`);
      await held[Symbol.asyncDispose]();
      expect(log).toHaveBeenCalledTimes(index + 1);
    }
  });

  test("is printed in production if SYNCGUARD_DEBUG is true, and otherwise not", async () => {
    vi.stubEnv("NODE_ENV", "production");
    const { backend, lose } = stage();
    await lock(backend, () => lose(), { key: KEY, ...EXTENDING });
    expect(log).not.toHaveBeenCalled();
    vi.stubEnv("SYNCGUARD_DEBUG", "true");
    await lock(backend, () => lose("b"), { key: "b", ...EXTENDING });
    expect(log).toHaveBeenCalledTimes(1);
  });

  test("goes to onLost in place of that: the call's, else the backend's", async () => {
    const [ofBackend, ofCall] = [vi.fn<OnLost>(), vi.fn<OnLost>()];
    const { backend, lose } = stage({ onLost: ofBackend });
    await lock(backend, () => lose("a"), { key: "a", ...EXTENDING });
    await backend.lock("b", EXTENDING);
    await lose("b");
    const acquired = await backend.acquire({ key: "c", ...EXTENDING });
    await lose("c");
    expect(ofBackend.mock.calls.map(([{ code }, { key }]) => [code, key])).toEqual([
      ["LockLost", "a"],
      ["LockLost", "b"],
      ["LockLost", "c"],
    ]);
    expect(ofBackend.mock.lastCall?.[1].lockId).toBe(acquired.ok && acquired.lockId);
    await lock(backend, () => lose("d"), { key: "d", ...EXTENDING, onLost: ofCall });
    const held = await backend.lock("e", { ...EXTENDING, onLost: ofCall });
    await lose("e");
    expect(ofCall.mock.calls.map(([, { key }]) => key)).toEqual(["d", "e"]);
    expect(ofCall.mock.lastCall?.[0]).toBe(held.signal.reason);
    expect(ofBackend).toHaveBeenCalledTimes(3);
    expect(log).not.toHaveBeenCalled();
  });

  test("goes to onLost on a backend of one's own, too", async () => {
    const onLost = vi.fn<OnLost>();
    const own = fakeBackend({ extend: async () => ({ ok: false }) });
    await lock(own, ({ extend }) => extend(5_000), { key: KEY, onLost });
    expect(onLost).toHaveBeenCalledTimes(1);
  });

  test("survives an onLost that throws", async () => {
    const { backend, lose } = stage();
    const onLost = (): never => {
      throw new Error("callback");
    };
    await lock(backend, () => lose(), { key: KEY, ...EXTENDING, onLost });
    expect(
      (await lockError(lock(backend, () => 1, { key: KEY, onLost: 5 as never }))).message,
    ).toBe("onLost must be a function");
  });

  test("is found by its release, although nobody has asked for its signal", async () => {
    const seen: string[] = [];
    const { backend, clock } = stage({ onLost: ({ message }, { key }) => seen.push(`${key}: ${message}`) }); // prettier-ignore
    // The work takes longer than the lock lasts; and somebody has put it out before.
    const late = { key: "late", ttlMs: 1_000 };
    await lock(backend, () => clock.advance(5_000), late);
    await lock(backend, () => backend.forceRelease("forced"), { key: "forced", ttlMs: 60_000 });
    const held = await backend.lock("handle", { ttlMs: 1_000 });
    await clock.advance(5_000);
    await held[Symbol.asyncDispose]();
    expect(seen).toEqual([
      "late: the lock was lost: its time was over when it was released",
      "forced: the lock was lost: it was gone when it was released",
      "handle: the lock was lost: its time was over when it was released",
    ]);
    const error = await lockError(
      lock(backend, () => clock.advance(5_000), { ...late, throwIfLost: true }),
    );
    expect(error.code).toBe("LockLost");
    // Nobody else can have had it within the tolerance.
    await lock(backend, () => clock.advance(1_500), { ...late, throwIfLost: true });
    expect(seen).toHaveLength(4);
  });

  test("is not printed if releaseAll() gives it back", async () => {
    const onLost = vi.fn<OnLost>();
    const { backend } = stage();
    const quiet = await backend.lock("a");
    await backend.lock("b", { onLost });
    await backend.releaseAll();
    expect(quiet.signal.reason).toMatchObject({ code: "LockLost" });
    expect(log).not.toHaveBeenCalled();
    expect(onLost).toHaveBeenCalledTimes(1);
  });

  test("is not one that was released", async () => {
    const { backend } = stage();
    await lock(backend, ({ signal }) => signal.aborted, { key: KEY, ...EXTENDING });
    await (await backend.lock(KEY)).release();
    expect(log).not.toHaveBeenCalled();
  });
});

describe("throwIfLost", () => {
  const options = { ...EXTENDING, onLost: () => undefined };

  test("rejects with LockLost in place of a result", async () => {
    const { backend, lose } = stage();
    const work = async (): Promise<string> => {
      await lose();
      return "written";
    };
    const error = await lockError(lock(backend, work, { key: KEY, ...options, throwIfLost: true }));
    expect(error).toMatchObject({ code: "LockLost", context: { key: KEY } });
    for (const throwIfLost of [false, null, undefined]) {
      const config = { key: `${throwIfLost}`, ...options, throwIfLost: throwIfLost as boolean };
      const other = async (): Promise<string> => {
        await lose(config.key);
        return "written";
      };
      expect(await lock(backend, other, config)).toBe("written");
    }
  });

  test("leaves alone what the function throws, and a lock that was not lost", async () => {
    const { backend, lose } = stage();
    const failure = new Error("work");
    const work = async (): Promise<never> => {
      await lose();
      throw failure;
    };
    const all = { key: KEY, ...options, throwIfLost: true };
    expect(await rejection(lock(backend, work, all))).toBe(failure);
    backend.faults.expire(KEY);
    expect(await lock(backend, () => 42, { ...all, key: "other" })).toBe(42);
  });

  test("must be a boolean", async () => {
    const { backend } = stage();
    const config = { key: KEY, throwIfLost: "yes" as never };
    expect((await lockError(lock(backend, () => 1, config))).message).toBe(
      "throwIfLost must be a boolean",
    );
  });
});

test("a lock is kept by each method of its handle", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  for (const name of ["assertHeld", "extend", "release", Symbol.asyncDispose] as const) {
    const { backend, clock } = stage();
    const kept = (await backend.lock(KEY, EXTENDING))[name];
    await clock.advance(1); // until the end of its job, nothing is collected
    collect();
    await clock.advance(1_000);
    expect((await backend.lookup({ key: KEY }))?.expiresAtMs, String(name)).toBe(clock.now() + 2_999); // prettier-ignore
    await kept((name === "extend" ? 1_000 : undefined) as never);
  }
});

describe("a lock that was given back before its caller has got it", () => {
  type Answer = { lockId: string; fence: string; expiresAtMs: number };
  /** A store that grants a lock with the answer, and no longer has it when it is released. */
  function forgetful(acquire: () => Promise<Answer>) {
    const onLost = vi.fn<OnLost>();
    const release = vi.fn(async () => "not-found");
    const store = {
      capabilities: { backend: "double", supportsFencing: true, timeAuthority: "server" },
      acquire,
      release,
      refuseWaiters: () => undefined,
    };
    const events: string[] = [];
    const backend = createBackend(store, { onLost });
    const observed = withTelemetry(backend, { onEvent: ({ type }) => events.push(type) });
    const nobodyHears = async (): Promise<void> => {
      await until(() => release.mock.calls.length === 1);
      await settle();
      expect(onLost).not.toHaveBeenCalled();
      expect(log).not.toHaveBeenCalled();
      expect(events).not.toContain("lost");
    };
    return { observed, backend, nobodyHears };
  }
  const answer = (): Answer => ({ lockId: generateLockId(), fence: "000000000000001", expiresAtMs: 5 }); // prettier-ignore

  test("is not lost, although its grant was read too late and it is gone", async () => {
    const { observed, nobodyHears } = forgetful(async () => {
      vi.spyOn(performance, "now").mockReturnValue(performance.now() + 5_000);
      return answer();
    });
    const error = await lockError(observed.acquire({ key: KEY, ttlMs: 1_000 }));
    vi.mocked(performance.now).mockRestore();
    expect(error.code).toBe("NetworkTimeout");
    await nobodyHears();
  });

  test("is not lost, although it was granted after releaseAll() and is gone", async () => {
    const granting = deferred<Answer>();
    const { observed, backend, nobodyHears } = forgetful(() => granting.promise);
    const refused = lockError(observed.acquire({ key: KEY, ttlMs: 1_000 }));
    await backend.releaseAll({ timeoutMs: 1 });
    granting.resolve(answer());
    expect((await refused).code).toBe("Aborted");
    await nobodyHears();
  });
});
