/** A held lock through every transition of the table in lease-state.ts, also those that change nothing. */

import { createRequire } from "node:module";
import { describe, expect, test } from "vitest";
import { generateLockId, type LockBackend } from "syncguard";
import { commentTables } from "../support/comment-tables";

type Lease = {
  readonly state: string;
  readonly loss: Error | undefined;
  readonly signal: AbortSignal;
  handOut(): void;
  lose(message: string): void;
  end(): void;
  freed(lockIds: string[]): void;
  gone(): void;
  assertHeld(): void;
};
type Asked = { readonly ok: boolean };

const load = createRequire(import.meta.url);
const { Lease } = load("../../dist/holding/lease.js") as { Lease: new (grant: object) => Lease };
const { systemClock } = load("../../dist/values/clock.js") as { systemClock: object };
const { extendHeld, releaseHeld } = load("../../dist/holding/held.js") as {
  extendHeld: (lease: Lease, access: object, ttlMs: number) => Promise<Asked>;
  releaseHeld: (lease: Lease, access: object) => Promise<Asked>;
};
const { accessTo } = load("../../dist/holding/internals.js") as {
  accessTo: (backend: object) => object;
};

const EVENTS: Readonly<Record<string, (lease: Lease) => void>> = {
  lose: (lease) => lease.lose("it was lost"),
  end: (lease) => lease.end(),
  freed: (lease) => lease.freed([lockId]),
  gone: (lease) => lease.gone(),
};
/** What brings a new lock into each state. */
const WAYS: Readonly<Record<string, readonly string[]>> = {
  held: [],
  lost: ["lose"],
  releasing: ["end"],
  released: ["end", "freed"],
  gone: ["end", "gone"],
};

const lockId = generateLockId();

/** A lock in that state, and how many losses its holder was told of. */
function leaseIn(state: string): { lease: Lease; losses: () => number } {
  let losses = 0;
  const onLost = (): void => void (losses += 1);
  const lease = new Lease({
    ...{ key: "account:4711", lockId, locks: undefined, due: undefined },
    ...{ grantedMs: performance.now(), endMs: Infinity, expiresAtMs: Infinity, lastsMs: 60_000 },
    terms: { clock: systemClock, minHoldMs: 0, onLost },
  });
  lease.handOut();
  for (const event of WAYS[state] ?? []) EVENTS[event]?.(lease);
  expect(lease.state).toBe(state);
  return { lease, losses: () => losses };
}

/** A backend that counts what it is asked, and has the lock. */
function asked(): { backend: Pick<LockBackend, "extend" | "release">; count: () => number } {
  let count = 0;
  const backend = {
    extend: async () => ({ ok: true, expiresAtMs: (count += 1) }) as const,
    release: async () => {
      count += 1;
      return { ok: true } as const;
    },
  };
  return { backend, count: () => count };
}

const tables = commentTables("npm/syncguard/holding/lease-state.ts");
const [transitions, abilities] = tables;

test("the comment has a table of transitions and one of what handles do, with the same states", () => {
  expect(tables).toHaveLength(2);
  expect(transitions?.head).toEqual(["state", ...Object.keys(EVENTS)]);
  expect(abilities?.head).toEqual(["state", "extend", "release", "assertHeld", "signal"]);
  expect(transitions?.rows.map(([state]) => state)).toEqual(Object.keys(WAYS));
  expect(abilities?.rows.map(([state]) => state)).toEqual(Object.keys(WAYS));
});

describe.each(transitions?.rows ?? [])("a lock that is %s", (before, ...after) => {
  test.each(Object.keys(EVENTS).map((event, place) => [event, after[place]]))(
    "is by %s then %s",
    (event, state) => {
      const { lease, losses } = leaseIn(before ?? "");
      const [toldBefore, lossBefore] = [losses(), lease.loss];
      EVENTS[event ?? ""]?.(lease);
      expect(lease.state).toBe(state);
      // A loss is told once, by what moves the lock to a state that says so.
      const isNewLoss = state !== before && (state === "lost" || state === "gone");
      expect(losses() - toldBefore).toBe(isNewLoss ? 1 : 0);
      if (!isNewLoss) expect(lease.loss).toBe(lossBefore);
    },
  );
});

describe.each(abilities?.rows ?? [])("a handle of a lock that is %s", (state, ...cells) => {
  const [extend, release, assertHeld, signal] = cells;

  test(`extend: ${extend}`, async () => {
    const { lease } = leaseIn(state ?? "");
    const { backend, count } = asked();
    const { ok } = await extendHeld(lease, accessTo(backend), 1_000);
    expect([ok, count()]).toEqual(extend === "asks the store" ? [true, 1] : [false, 0]);
  });

  test(`release: ${release}`, async () => {
    const { lease } = leaseIn(state ?? "");
    const { backend, count } = asked();
    const { ok } = await releaseHeld(lease, accessTo(backend));
    expect([ok, count()]).toEqual([release === "asks the store", 1]);
  });

  test(`assertHeld: ${assertHeld}`, () => {
    const { lease } = leaseIn(state ?? "");
    if (assertHeld === "passes") lease.assertHeld();
    else expect(() => lease.assertHeld()).toThrow(/the lock is not held any more|lost/);
  });

  test(`signal: ${signal}`, () => {
    const { lease } = leaseIn(state ?? "");
    expect(lease.signal.aborted).toBe(signal === "aborted");
  });
});

test("what was lost while it was held is refused for ever, also once it is released", async () => {
  const { lease } = leaseIn("lost");
  lease.freed([lockId]);
  expect(lease.state).toBe("released");
  const { backend, count } = asked();
  expect((await extendHeld(lease, accessTo(backend), 1_000)).ok).toBe(false);
  expect(count()).toBe(0);
  expect((await releaseHeld(lease, accessTo(backend))).ok).toBe(false);
  expect(lease.signal.aborted).toBe(true);
});
