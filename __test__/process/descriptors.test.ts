import { spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { plainRedis } from "../support/redis";

const FIXTURE = fileURLToPath(new URL("fixtures/no-descriptors.mjs", import.meta.url));
/** Nobody is asked there: connections cannot be made. */
const NOWHERE = ["postgres://user@127.0.0.1:1/db", "firestore://project"];

let server: Awaited<ReturnType<typeof plainRedis>>;
beforeAll(async () => {
  server = await plainRedis();
});
afterAll(async () => {
  await server.stop();
});

test.each(["cold", "warm"])(
  "without a file descriptor left, operations fail and constructors do not (%s)",
  async (warm) => {
    const child = spawn(
      "sh",
      [
        "-c",
        'ulimit -n 128; exec "$@"',
        "sh",
        process.execPath,
        FIXTURE,
        warm,
        server.url,
        ...NOWHERE,
      ],
      {
        env: { ...process.env, FIRESTORE_EMULATOR_HOST: "127.0.0.1:1" },
        stdio: ["ignore", "pipe", "pipe"],
      },
    );
    const [stdout, stderr] = await Promise.all([
      text(child.stdout),
      text(child.stderr),
      once(child, "close"),
    ]);
    expect({ code: child.exitCode, stderr }).toEqual({ code: 0, stderr: "" });
    expect(JSON.parse(stdout)).toEqual({
      without: ["ServiceUnavailable", "ServiceUnavailable", "ServiceUnavailable"],
      later: true,
    });
  },
);
