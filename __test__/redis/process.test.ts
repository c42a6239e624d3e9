import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectToEnd, run } from "../support/child";
import { type RedisServer, startRedis } from "../support/redis";

let server: RedisServer;
beforeAll(async () => {
  server = await startRedis();
});
afterAll(async () => {
  await server.stop();
});

describe.each(["node", "bun"] as const)("a process of %s", (runtime) => {
  test("ends by itself with idle connections open", async () => {
    await expectToEnd(runtime, "../../redis/fixtures/use-and-end.mjs", [server.url]);
  });

  test("lives until its operations have ended", async () => {
    await server.admin.flushall();
    const { code, stdout, stderr } = await run(runtime, "../../redis/fixtures/in-flight.cjs", [
      server.url,
    ]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout.match(/acquired/g)).toHaveLength(50);
  });
});
