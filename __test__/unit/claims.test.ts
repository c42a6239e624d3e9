/** Several keys, and slots: what may be asked for, and what is said of anything else. */

import { expect, describe, onTestFinished, test, vi } from "vitest";
import {
  lock,
  type LockBackendLike,
  type LockConfig,
  type SyncGuardBackend,
  withTelemetry,
} from "syncguard";
import { createAutoLock } from "syncguard/common";
import { createTestBackend } from "syncguard/testing";
import { lockError } from "../support/errors";
import { fakeBackend } from "../support/fake-backend";

const ttlMs = 30_000;
const many = (count: number) => Array.from({ length: count }, (_, at) => `account:${at}`);

/** What lock(), backend.lock() and acquire() refuse, and how. */
const WRONG_CLAIMS: [what: string, claims: unknown, message: RegExp][] = [
  ["no key", [], /^keys must not be empty$/],
  ["a key and slots of it", ["a", { key: "a", slots: 2 }], /^keys must not contain a key twice/],
  [
    "a key in both modes",
    ["a", { key: "a", mode: "shared" }],
    /mode "shared".* release it and ask/,
  ],
  ["101 keys", many(101), /^keys must not ask for more than 100 locks at once: lock what contains/],
  [
    "101 locks of fewer keys",
    [
      { key: "a", slots: 100, take: 60 },
      { key: "b", slots: 100, take: 41 },
    ],
    /^keys must not ask for more than 100 locks/,
  ],
  ["an empty key", ["a", ""], /^Key must not be empty/],
  ["a key that is too long", ["a", "b".repeat(513)], /^Key exceeds maximum length of 512 bytes/],
  ["a number as a key", ["a", 5], /^Key must be a string$/],
  ["nothing as a claim", ["a", null], /^Key must be a string$/],
  ["bytes as a key", ["a", Buffer.from("b")], /^Key must be a string: give bytes as text/],
  ["a claim without a key", [{ slots: 5 }], /^Key must be a string/],
  ["a member that is none", [{ key: "a", slot: 5 }], /slot.*slots/s],
];

test("a key that is there twice is one key", async () => {
  const backend = createTestBackend();
  for (const keys of [
    ["a", "b", "a"],
    ["caf\u00e9", "cafe\u0301"],
    ["a", { key: "a" }],
    ["a", { key: "a", mode: "exclusive" } as const],
  ]) {
    const names = new Set(keys.map((key) => (typeof key === "string" ? key : key.key).normalize()));
    await using held = await backend.lock(keys, { ttlMs });
    expect(held.locks.map(({ key }) => key.normalize())).toEqual([...names]);
  }
});

test("a time is no TTL", async () => {
  const backend = createTestBackend();
  const error = await lockError(backend.lock("a", { ttlMs: Date.now() + ttlMs }));
  expect(error).toMatchObject({ code: "InvalidArgument" });
  expect(error.message).toContain("ttlMs is how long the lock lasts, and not when it ends");
});

test("where a test has set the clock to 0, a TTL is no time", async () => {
  vi.useFakeTimers({ now: 0, toFake: ["Date"] });
  onTestFinished(() => void vi.useRealTimers());
  await using held = await createTestBackend().lock("a", { ttlMs });
  expect(held.key).toBe("a");
});

const WRONG_CLAIM: [what: string, claim: unknown, message: RegExp][] = [
  ...[0, -1, 1.5, 1_001, NaN, Infinity, "5", true, {}].map((slots): [string, unknown, RegExp] => [
    `slots: ${JSON.stringify(slots)}`,
    { key: "a", slots },
    /^slots must be a whole number from 1 to 1000$/,
  ]),
  ...[0, 1.5, 101, "2"].map((take): [string, unknown, RegExp] => [
    `take: ${JSON.stringify(take)}`,
    { key: "a", slots: 1_000, take },
    /^take must be a whole number from 1 to 100$/,
  ]),
  ["more than there are", { key: "a", slots: 2, take: 3 }, /^take must not be larger than slots$/],
  ["take without slots", { key: "a", take: 1 }, /^take needs slots$/],
  ["another mode", { key: "a", mode: "read" }, /^mode must be "shared" or "exclusive"$/],
  ["slots to share", { key: "a", mode: "shared", slots: 2 }, /^mode cannot be given beside slots/],
  ["a member that is none", { key: "a", slots: 2, takes: 1 }, /takes.*take/s],
  ["a claim without a key", { slots: 2 }, /^Key must be a string/],
  ["bytes as a key", Buffer.from("b"), /^Key must be a string: give bytes as text/],
  [
    "bytes as a claim's key",
    { key: new Uint8Array(2) },
    /^Key must be a string: give bytes as text/,
  ],
];

describe("what is asked for", () => {
  test.each([...WRONG_CLAIMS, ...WRONG_CLAIM])("is refused: %s", async (_, asked, message) => {
    const backend = createTestBackend();
    for (const refused of [
      backend.lock(asked as string[]),
      lock(backend, () => 1, { key: asked as string[] }),
      createAutoLock(backend)(() => 1, { key: asked as string[] }),
      withTelemetry(backend, { onEvent: () => undefined }).lock(asked as string[]),
    ]) {
      expect(await lockError(refused)).toMatchObject({
        code: "InvalidArgument",
        message: expect.stringMatching(message) as string,
      });
    }
  });

  test.each(WRONG_CLAIMS)("is refused by acquire(): %s", async (_, claims, message) => {
    const backend = createTestBackend();
    expect(await lockError(backend.acquire({ claims: claims as string[], ttlMs }))).toMatchObject({
      code: "InvalidArgument",
      message: expect.stringMatching(message) as string,
    });
  });

  test("is an array in acquire()", async () => {
    const backend = createTestBackend();
    for (const claims of ["a", { key: "a" }, 5]) {
      expect(await lockError(backend.acquire({ claims: claims as never, ttlMs }))).toMatchObject({
        code: "InvalidArgument",
        message: "claims must be an array",
      });
    }
  });

  test("is a key or claims, and not both", async () => {
    const backend = createTestBackend();
    const both = { key: "a", claims: ["b"], ttlMs };
    expect(await lockError(backend.acquire(both))).toMatchObject({
      code: "InvalidArgument",
      message: "key cannot be given beside claims",
    });
  });

  test("may have null where a member is left out", async () => {
    const backend = createTestBackend();
    const claim = { key: "a", slots: null, take: null } as never;
    await using one = await backend.lock(claim);
    expect(one).toMatchObject({ key: "a" });
    const slot = { key: "b", slots: 2, take: null } as never;
    await using permit = await backend.lock(slot);
    expect(permit).toMatchObject({ key: "b", slot: 1 });
  });

  test("may be as much as allowed", async () => {
    const backend = createTestBackend();
    await using all = await backend.lock(many(100));
    expect(all.locks).toHaveLength(100);
    await using permits = await backend.lock({ key: "a", slots: 1_000, take: 100 });
    expect(new Set(permits.locks.map(({ slot }) => slot)).size).toBe(100);
    await using one = await backend.lock({ key: "b", slots: 1 });
    expect(one.slot).toBe(1);
  });

  test("shows no key in a message", async () => {
    const backend = createTestBackend();
    const secret = "secret:key";
    for (const claims of [
      [secret, { key: secret, slots: 2 }],
      [{ key: secret, slots: 0 }],
      [{ key: secret, take: 1 }],
    ]) {
      const { message } = await lockError(backend.lock(claims));
      expect(message).not.toContain("secret");
    }
  });
});

describe("lock ids", () => {
  const WRONG: [what: string, ids: unknown, message: RegExp][] = [
    ["none", { lockIds: [] }, /^lockIds must be an array that is not empty$/],
    ["a text", { lockIds: "a" }, /^lockIds must be an array that is not empty$/],
    ["no lock id", { lockIds: ["short"] }, /^Invalid lockId/],
    [
      "beside one",
      { lockId: "A".repeat(22), lockIds: ["B".repeat(22)] },
      /^lockId cannot be given/,
    ],
    [
      "twice",
      { lockIds: ["A".repeat(22), "A".repeat(22)] },
      /^lockIds must not contain a lock id twice$/,
    ],
    [
      "too many",
      { lockIds: Array.from({ length: 101 }, (_, at) => String(at).padStart(22, "A")) },
      /^lockIds must not name more than 100 locks$/,
    ],
    // What stands between them on the way to the addon.
    ["two in one", { lockId: `${"A".repeat(22)},${"B".repeat(22)}` }, /^Invalid lockId/],
    [
      "two in one of several",
      { lockIds: [`${"A".repeat(22)},${"B".repeat(22)}`] },
      /^Invalid lockId/,
    ],
  ];

  test.each(WRONG)("are refused: %s", async (_, ids, message) => {
    const backend = createTestBackend();
    for (const refused of [
      backend.release(ids as { lockIds: string[] }),
      backend.extend({ ...(ids as { lockIds: string[] }), ttlMs }),
    ]) {
      expect(await lockError(refused)).toMatchObject({
        code: "InvalidArgument",
        message: expect.stringMatching(message) as string,
      });
    }
  });
});

describe("a backend of users' own", () => {
  const ASKED = [
    ["a", "b"],
    ["a"],
    { key: "a", slots: 5 },
    { key: "a", slots: 5, take: 2 },
    { key: "a", mode: "shared" },
  ];
  const OWN: [what: string, wrap: (mine: LockBackendLike) => LockBackendLike][] = [
    ["itself", (mine) => mine],
    ["behind withTelemetry()", (mine) => withTelemetry(mine, { onEvent: () => undefined })],
  ];

  test.each(OWN)("says that it takes one key at a time: %s", async (_, wrap) => {
    const mine = fakeBackend();
    const backend = wrap(mine);
    for (const key of ASKED) {
      expect(await lockError(lock(backend, () => 1, { key: key as string[] }))).toMatchObject({
        code: "InvalidArgument",
        message:
          "this backend takes one key at a time: several keys, slots and shared locks need a backend of this package",
      });
    }
    expect(mine.acquired).toEqual([]);
    // A claim of the key alone is nothing else than the key.
    expect(await lock(backend, ({ key }) => key, { key: { key: "a" } as never })).toBe("a");
  });

  test("says so to acquire(), release() and extend() behind withTelemetry()", async () => {
    const mine = fakeBackend();
    const backend = withTelemetry(mine, { onEvent: () => undefined });
    const lockIds = ["A".repeat(22), "B".repeat(22)];
    for (const refused of [
      backend.acquire({ claims: ["a", "b"], ttlMs } as never),
      backend.acquire({ key: "a", slots: 2, ttlMs } as never),
      backend.acquire({ key: "a", mode: "shared", ttlMs } as never),
      backend.release({ lockIds } as never),
      backend.extend({ lockIds, ttlMs } as never),
    ]) {
      expect(await lockError(refused)).toMatchObject({
        code: "InvalidArgument",
        message: expect.stringMatching(/^this backend takes one key at a time/) as string,
      });
    }
    expect([mine.acquired, mine.released]).toEqual([[], []]);
  });
});

/** Asks for what stands beside a key in each function that takes it, without the types. */
const BESIDE: [
  of: string,
  ask: (backend: SyncGuardBackend, key: unknown, beside: object) => Promise<unknown>,
][] = [
  ["lock()", (on, key, beside) => lock(on, (handle) => handle, { key, ...beside } as LockConfig)],
  [
    "createLock()",
    (on, key, beside) => createAutoLock(on)((handle) => handle, { key, ...beside } as LockConfig),
  ],
  ["backend.lock()", (on, key, beside) => on.lock(key as string, beside)],
  ["tryLock()", (on, key, beside) => on.tryLock(key as string, (handle) => handle, beside)],
  ["acquire()", (on, key, beside) => on.acquire({ key, ttlMs, ...beside } as never)],
];

describe("slots beside a key", () => {
  test("are slots of the key in lock() and createLock()", async () => {
    const backend = createTestBackend();
    await lock(
      backend,
      async ({ slot }) => {
        expect(slot).toBeGreaterThan(0);
        const other = await backend.tryLock({ key: "a", slots: 2 }, ({ slot }) => slot);
        expect(other).toEqual({ ran: true, value: 3 - slot });
        expect(await backend.isLocked({ key: "a" })).toBe(false);
      },
      { key: "a", slots: 2 },
    );
    const bound = createAutoLock(backend);
    expect(await bound(({ slot }) => slot, { key: "a", slots: 1 })).toBe(1);
  });

  test("are the same slots in backend.lock(), tryLock(), acquire() and as a claim", async () => {
    const backend = createTestBackend();
    await using one = await backend.lock("a", { slots: 3 });
    await using two = await backend.acquire({ key: "a", slots: 3, ttlMs });
    if (!two.ok) throw new Error("there are three");
    const third = await backend.tryLock("a", ({ slot }) => slot, { slots: 3 });
    if (!third.ran) throw new Error("there are three");
    expect([one.slot, two.slot, third.value].sort()).toEqual([1, 2, 3]);
    expect(two).not.toHaveProperty("locks");
    await using last = await backend.lock({ key: "a", slots: 3 });
    expect(last.slot).toBe(third.value);
    expect(await backend.acquire({ key: "a", slots: 3, ttlMs })).toMatchObject({ ok: false });
    expect(await backend.tryLock("a", () => 1, { slots: 3 })).toMatchObject({ ran: false });
    expect(await backend.isLocked({ key: "a" })).toBe(false);
  });

  const claim = { key: "a", slots: 2 };
  const WRONG: [key: unknown, beside: object, message: RegExp][] = [
    [claim, { slots: 2 }, /^slots belongs into the claim/],
    [["a", "b"], { slots: 2 }, /^slots belongs into the claim/],
    [["a", "b"], { mode: "shared" }, /^mode belongs into the claim/],
    ["a", { mode: "shared", slots: 2 }, /^mode cannot be given beside slots/],
    ["a", { slots: 2, take: 2 }, /^take belongs into a claim/],
    ["a", { slots: 0 }, /^slots must be a whole number/],
    ["", { slots: 2 }, /^Key must not be empty/],
  ];
  test.each(BESIDE.flatMap(([of, ask]) => WRONG.map((wrong) => [of, ...wrong, ask] as const)))(
    "are refused by %s: %j and %j",
    async (_, key, beside, message, ask) => {
      expect(await lockError(ask(createTestBackend(), key, beside))).toMatchObject({
        code: "InvalidArgument",
        message: expect.stringMatching(message) as string,
      });
    },
  );

  test("are refused beside claims", async () => {
    const refused = createTestBackend().acquire({ claims: ["a"], slots: 2, ttlMs } as never);
    expect(await lockError(refused)).toMatchObject({
      code: "InvalidArgument",
      message: "slots belongs into the claim: { key, slots }",
    });
  });

  test.each(BESIDE)("are the lock on the key if they are null: %s", async (_, ask) => {
    const given = await ask(createTestBackend(), "a", { slots: null, take: null });
    const handle = (given as { value?: object }).value ?? given;
    expect(handle).toHaveProperty("lockId");
    expect(handle).not.toHaveProperty("slot");
  });
});
