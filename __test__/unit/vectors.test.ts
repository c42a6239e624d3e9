import { readFileSync } from "node:fs";
import { describe, expect, test, vi } from "vitest";
import {
  generateLockId,
  hashKey,
  lock,
  makeStorageKey,
  normalizeAndValidateKey,
  validateLockId,
} from "syncguard";
import { formatFence } from "syncguard/common";
import { createTestBackend, TestClock } from "syncguard/testing";
import { readDue, storedDue } from "../../npm/syncguard/values/due.js";
import { lockError, thrownLockError } from "../support/errors";

type Expected = { output?: string; error?: string; message?: string };
type Vectors = {
  hashKey: (Expected & { input: string })[];
  makeStorageKey: (Expected & {
    prefix: string;
    key: string;
    limitBytes: number;
    reserveBytes: number;
  })[];
  formatFence: (Expected & { input: number })[];
  normalize: (Expected & { input: string })[];
  lockId: (Expected & { input: string })[];
  ttl: (Expected & { input: number })[];
  owner: (Expected & { input: string })[];
  due: (Expected & { input: string })[];
  /** The number as a text, because JSON has no infinity. */
  acquisition: (Expected & { option: string; input: string })[];
};

// Those of the core, whose package has to hold them. Not imported: some strings are no valid Unicode.
const file = new URL("../../crates/syncguard/tests/vectors.json", import.meta.url);
const vectors = JSON.parse(readFileSync(file, "utf8")) as Vectors;

function check(run: () => string, { output, error, message }: Expected): void {
  if (error === undefined) {
    expect(run()).toBe(output);
  } else {
    const thrown = thrownLockError(run);
    expect(thrown.code).toBe(error);
    if (message !== undefined) expect(thrown.message).toBe(message);
  }
}

/** What a backend says of arguments, which are right if it grants the lock. */
async function checkArguments(
  args: { ttlMs?: number; owner?: string },
  { error, message }: Expected,
): Promise<void> {
  const attempt = createTestBackend().acquire({ key: "some:key", ttlMs: 1_000, ...args });
  if (error === undefined) expect(await attempt).toMatchObject({ ok: true });
  else expect(await lockError(attempt)).toMatchObject({ code: error, message });
}

const short = (value: unknown): string => JSON.stringify(value).slice(0, 60);

describe("shared test vectors", () => {
  test("there are some for each function", () => {
    expect(Object.keys(vectors).sort()).toEqual([
      ...["acquisition", "due", "formatFence", "hashKey", "lockId", "makeStorageKey", "normalize"],
      ...["owner", "redisCluster", "ttl"],
    ]);
    for (const list of Object.values(vectors)) expect(list.length).toBeGreaterThan(4);
  });

  test.each(vectors.hashKey.map((vector) => [short(vector.input), vector] as const))(
    "hashKey(%s)",
    (_, vector) => {
      check(() => hashKey(vector.input), vector);
    },
  );

  test.each(vectors.makeStorageKey.map((vector) => [short(vector), vector] as const))(
    "makeStorageKey(%s)",
    (_, vector) => {
      const { prefix, key, limitBytes, reserveBytes } = vector;
      check(() => makeStorageKey(prefix, key, limitBytes, reserveBytes), vector);
    },
  );

  test.each(vectors.formatFence.map((vector) => [short(vector.input), vector] as const))(
    "formatFence(%s)",
    (_, vector) => {
      check(() => formatFence(vector.input), vector);
      check(() => formatFence(BigInt(vector.input)), vector);
    },
  );

  test.each(vectors.normalize.map((vector) => [short(vector.input), vector] as const))(
    "normalizeAndValidateKey(%s)",
    (_, vector) => {
      check(() => normalizeAndValidateKey(vector.input), vector);
    },
  );

  test.each(vectors.lockId.map((vector) => [short(vector.input), vector] as const))(
    "validateLockId(%s)",
    (_, vector) => {
      const run = (): string => {
        validateLockId(vector.input);
        return vector.input;
      };
      check(run, vector);
    },
  );

  test.each(vectors.ttl.map((vector) => [vector.input, vector] as const))(
    "ttlMs %s",
    async (ttlMs, vector) => {
      await checkArguments({ ttlMs }, vector);
    },
  );

  test.each(vectors.owner.map((vector) => [short(vector.input), vector] as const))(
    "owner %s",
    async (_, vector) => {
      await checkArguments({ owner: vector.input }, vector);
    },
  );

  test.each(vectors.due.map((vector) => [short(vector.input), vector] as const))(
    "due %s",
    (_, vector) => {
      check(() => storedDue(readDue(vector.input)), vector);
    },
  );

  test.each(vectors.acquisition)("acquisition.$option $input", async (vector) => {
    const acquisition = { [vector.option]: Number(vector.input) };
    const run = lock(createTestBackend(), () => "ran", { key: "some:key", acquisition });
    if (vector.error === undefined) expect(await run).toBe("ran");
    else
      expect(await lockError(run)).toMatchObject({ code: vector.error, message: vector.message });
  });
});

describe("what no vector can have", () => {
  const messageOf = (run: () => unknown): string => {
    const { code, message } = thrownLockError(run);
    expect(code).toBe("InvalidArgument");
    return message;
  };

  test("is refused as a key, an owner or a TTL", async () => {
    for (const [value, problem] of [
      ...[undefined, null, 1, {}, Symbol("x")].map((other) => [other, "a string"] as const),
      ["\ud800x", "well-formed Unicode"],
    ] as const) {
      const message = messageOf(() => normalizeAndValidateKey(value as never));
      expect(message).toBe(`Key must be ${problem}`);
      if (value === undefined || value === null) continue;
      const owner = value as never;
      await checkArguments(
        { owner },
        { error: "InvalidArgument", message: `owner must be ${problem}` },
      );
    }
    const message = "ttlMs must be a positive integer";
    for (const ttlMs of [Number.NaN, Infinity, -Infinity, null, "1", {}, Symbol("x")] as never[]) {
      await checkArguments({ ttlMs }, { error: "InvalidArgument", message });
    }
  });

  test("is refused as a lock id, a fence, or what is hashed", () => {
    const form = "Invalid lockId format. Expected 22 base64url characters, got: ";
    for (const [value, got] of [
      ...[undefined, null, 0, ""].map((other) => [other, "empty/null"] as const),
      [1, "a value of type number"],
      [{}, "a value of type object"],
      [Symbol("x"), "a value of type symbol"],
    ] as const) {
      expect(messageOf(() => validateLockId(value as never))).toBe(form + got);
    }
    for (const value of ["", "x", "1.5", null, {}, Symbol("x")] as never[]) {
      expect(messageOf(() => formatFence(value))).toBe("Fence must be a whole number");
    }
    expect(formatFence("000000000000000000000001" as never)).toBe("000000000000001");
    expect(messageOf(() => hashKey(5 as never))).toBe("what is hashed must be a string");
  });

  test("is a new lock id each time", () => {
    const ids = Array.from({ length: 100 }, generateLockId);
    expect(new Set(ids).size).toBe(100);
    ids.forEach(validateLockId);
  });

  test("is a fence that comes near its limit, of which the test backend warns, too", async () => {
    const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
    const backend = createTestBackend({ clock: new TestClock(90_000_000_000_000) });
    await (await backend.lock("some:key")).release();
    expect(warn).not.toHaveBeenCalled();
    expect((await backend.lock("some:key")).fence).toBe("090000000000001");
    expect(warn).toHaveBeenCalledTimes(1);
  });
});
