import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { hashKey, makeStorageKey, normalizeAndValidateKey } from "syncguard";
import { formatFence } from "syncguard/common";
import { thrownLockError } from "../support/errors";

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

const short = (value: unknown): string => JSON.stringify(value).slice(0, 60);

describe("shared test vectors", () => {
  test("there are some for each function", () => {
    expect(Object.keys(vectors).sort()).toEqual([
      "formatFence",
      "hashKey",
      "makeStorageKey",
      "normalize",
      "redisCluster",
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
});
