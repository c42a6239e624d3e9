/** Locks that are checked in transactions of Google's client, as far as no server is needed. */

import { createRequire } from "node:module";
import { describe, expect, test, vi } from "vitest";
import { generateLockId } from "syncguard";
import { lockError } from "../support/errors";

const load = createRequire(import.meta.url);
type Held = { readonly lockIds: string[]; leave: (lockIds: string[], isOwn: boolean) => unknown };
const { Lease } = load("../../dist/holding/lease.js") as {
  Lease: new (...args: unknown[]) => Held;
};
const { guarding } = load("../../dist/firestore/guard.js") as {
  guarding: (
    options: object,
  ) => (
    lease: Held,
    direct: () => Promise<object | null>,
  ) => { guard: (tx: object) => Promise<void> };
};
const { systemClock } = load("../../dist/values/clock.js") as { systemClock: object };

const MINUTE_MS = 60_000;

/** Locks that end in a minute, and a transaction in which their documents are there. */
function stage(serverMs?: number) {
  const expiresAtMs = Date.now() + MINUTE_MS;
  const locks = ["a", "b"].map((key) => ({
    key,
    slot: null,
    lockId: generateLockId(),
    fence: "1",
  }));
  const lease = new Lease({
    ...{ key: "a", lockId: locks[0]?.lockId, locks, due: undefined },
    ...{ grantedMs: 0, endMs: Infinity, expiresAtMs: Infinity, lastsMs: MINUTE_MS },
    terms: { clock: systemClock, minHoldMs: 0 },
  });
  const stored = new Map(locks.map((lock) => [lock.key, lock]));
  const snapshot = (id: string) => ({
    data: () => {
      const lock = stored.get(id);
      const times = { acquiredAtMs: 0, expiresAtMs };
      return lock && { lockId: lock.lockId, key: id, fence: "000000000000001", ...times };
    },
    ...(serverMs === undefined ? {} : { readTime: { toMillis: () => serverMs } }),
  });
  /** Runs while the documents are read. */
  let meanwhile = (): void => undefined;
  const tx = {
    get: () => undefined,
    getAll: async (...ids: string[]) => {
      meanwhile();
      return ids.map(snapshot);
    },
    _firestore: { collection: () => ({ doc: (id: string) => id }) },
  };
  const isThere = async (): Promise<object> => ({});
  const { guard } = guarding({})(lease, isThere);
  const release = (lockIdOf: string): void => {
    const lock = stored.get(lockIdOf);
    stored.delete(lockIdOf);
    lease.leave([lock?.lockId ?? ""], true);
  };
  return {
    guard: () => guard(tx),
    onRead: (run: () => void) => {
      meanwhile = run;
    },
    release,
    lose: (name: string) => stored.delete(name),
  };
}

describe("a guard", () => {
  test("finds a lock that is held by Firestore's time, also where this machine's clock is ahead", async () => {
    const [nowMs, laterMs] = [Date.now(), Date.now() + 2 * MINUTE_MS];
    const [held, over, untold] = [stage(nowMs), stage(laterMs), stage(undefined)];
    vi.spyOn(Date, "now").mockReturnValue(laterMs);
    await held.guard();
    for (const { guard } of [over, untold]) await lockError(guard());
  });

  test("lets a lock be that is released by its id meanwhile, and finds the others", async () => {
    const { guard, onRead, release, lose } = stage();
    onRead(() => release("a"));
    await guard();
    onRead(() => lose("b"));
    expect((await lockError(guard())).code).toBe("InvalidArgument");
  });
});
