import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { expectToEnd, run, runtimes } from "../support/child";
import { type RedisServer, startRedis, startTlsRedis } from "../support/redis";
import { newKey } from "../support/suite";
import { until } from "../support/until";

let server: RedisServer;
beforeAll(async () => {
  server = await startRedis();
});
afterAll(async () => {
  await server.stop();
});

describe.each(runtimes)("a process of %s", (runtime) => {
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

test(
  "process.exit() in the middle of many calls over TLS ends a process as asked",
  { timeout: 180_000 },
  async () => {
    const tls = await startTlsRedis();
    onTestFinished(tls.stop);
    const connection = JSON.stringify(tls.connection);
    const exits = async (number: number): Promise<void> => {
      const [from, afterMs] = [number % 2 === 0 ? "timer" : "grant", 5 + number];
      const args = [connection, newKey(), from, String(afterMs), String(number)];
      const finished = await run("node", "../../redis/fixtures/exit.mjs", args);
      const expected = { code: number, signal: null, stdout: "ready\n", stderr: "" };
      expect(finished).toEqual(expected);
    };
    for (let first = 0; first < 40; first += 4) {
      await Promise.all([0, 1, 2, 3].map((index) => exits(first + index)));
    }
    // Locks end with their time, half a second and the tolerance of one.
    await until(
      async () => (await tls.admin.keys("*")).every((key) => key.includes("fence:")),
      1_500 + 1_000,
    );
  },
);
