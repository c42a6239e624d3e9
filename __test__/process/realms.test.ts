/** This package in contexts of `node:vm`, in which Jest loads it anew for each file of tests. */

import { describe, expect, test } from "vitest";
import { run } from "../support/child";
import { startRedis } from "../support/redis";

const TIME = { timeout: 120_000 };

describe("a realm of node:vm", () => {
  test("is collected when nobody uses it any more (SQLite)", TIME, async () => {
    const { code, stdout, stderr } = await run("node", "realm-collected.cjs", ["sqlite"]);
    expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: "20 of 20\n", stderr: "" });
  });

  test("is collected when nobody uses it any more (Redis)", TIME, async () => {
    const redis = await startRedis();
    try {
      const args = ["redis", redis.url];
      const { code, stdout, stderr } = await run("node", "realm-collected.cjs", args);
      expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: "20 of 20\n", stderr: "" });
    } finally {
      await redis.stop();
    }
  });

  test("disposes of locks, also where it lacks Symbol.asyncDispose", async () => {
    const { code, stdout, stderr } = await run("node", "realm-disposal.cjs");
    const names = "names are right\nreleased\n";
    expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: names, stderr: "" });
  });
});
