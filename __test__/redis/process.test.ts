import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { run, start } from "../support/child";
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
    const program = start(runtime, "../../redis/fixtures/use-and-end.mjs", [server.url]);
    await program.printed("done");
    const { code, stdout, stderr } = await program.finished;
    const endedMs = Date.now() - Number(stdout.split(" ")[1]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(endedMs).toBeLessThan(1_000);
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
