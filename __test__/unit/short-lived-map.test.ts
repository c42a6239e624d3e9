/** The map of what comes and goes with each lock. */

import { createRequire } from "node:module";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";

type Table = {
  readonly size: number;
  get(key: string): object | undefined;
  has(key: string): boolean;
  set(key: string, value: object): void;
  delete(key: string): void;
  entries(): [string, object][];
  values(): object[];
};

const { ShortLivedMap } = createRequire(import.meta.url)(
  "../../dist/native/short-lived-map.js",
) as { ShortLivedMap: new () => Table };

test("is a map", () => {
  const map = new ShortLivedMap();
  const model = new Map<string, object>();
  for (let step = 0; step < 5_000; step += 1) {
    const key = `key ${(step * 7_919) % 101}`;
    if (step % 3 === 0) {
      map.delete(key);
      model.delete(key);
    } else if (Math.floor(step / 500) % 2 === 0) {
      const value = { step };
      map.set(key, value);
      model.set(key, value);
    } else {
      map.delete(`key ${step % 101}`);
      model.delete(`key ${step % 101}`);
    }
    expect(map.size).toBe(model.size);
    expect(map.get(key)).toBe(model.get(key));
    expect(map.has(key)).toBe(model.has(key));
  }
  expect(map.entries()).toEqual([...model.entries()]);
  expect(map.values()).toEqual([...model.values()]);
});

test("what was deleted does not survive scavenges", () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as (options?: { type: "minor" }) => void;
  const map = new ShortLivedMap();
  const round = (number: number) => {
    for (let one = 0; one < 100; one += 1) map.set(`${number} ${one}`, new Array(250).fill(one));
    for (let one = 0; one < 100; one += 1) map.delete(`${number} ${one}`);
  };
  round(0);
  // Its table is old from here on.
  collect();
  const before = process.memoryUsage().heapUsed;
  for (let number = 1; number <= 50; number += 1) {
    round(number);
    collect({ type: "minor" });
  }
  // 5,000 arrays of 2 kB.
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(2_000_000);
});
