/** Connections that end while JavaScript is busy: the next call has another one. */

import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { createRedisBackend, type RedisConnectionOptions } from "syncguard/redis";
import { startAbruptProxy } from "../support/abrupt-proxy";
import { startProgram } from "../support/child";
import { type RedisServer, startRedis, startTlsRedis } from "../support/redis";
import { newKey, take } from "../support/suite";
import { temporaryFolder } from "../support/temp";

/** So long that nothing is noticed in time that is noticed by a call that gets no answer. */
const LIMIT = { operationTimeoutMs: 60_000 };
const SOON_MS = 2_000;

let plain: RedisServer;
let secured: Awaited<ReturnType<typeof startTlsRedis>>;
beforeAll(async () => {
  [plain, secured] = await Promise.all([startRedis(), startTlsRedis()]);
});
afterAll(async () => {
  await Promise.all([plain.stop(), secured.stop()]);
});

const ways: Readonly<Record<string, () => RedisConnectionOptions & { port: number }>> = {
  TCP: () => ({ host: "127.0.0.1", port: plain.port }),
  TLS: () => ({ ...secured.connection, port: secured.port }),
};

/** A backend that is connected and whose server knows its scripts, and what leads there. */
async function connected(connection: RedisConnectionOptions & { port: number }) {
  const proxy = await startAbruptProxy(connection.port);
  const backend = createRedisBackend({ ...connection, port: proxy.port }, LIMIT);
  onTestFinished(backend.close);
  await (await take(backend, newKey())).release();
  await backend.isLocked({ key: newKey() });
  return { backend, proxy };
}

const block = (ms: number): void => {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
};

describe.each(Object.entries(ways))("over %s", (_, open) => {
  test("a reset behind an answer is seen with the answer", async () => {
    const { backend, proxy } = await connected(open());
    const start = performance.now();
    const answered = proxy.answerAndReset(() => backend.isLocked({ key: newKey() }));
    expect(await answered).toBe(false);
    const held = await take(backend, newKey());
    expect(await held.release()).toEqual({ ok: true });
    expect(performance.now() - start).toBeLessThan(SOON_MS);
  });

  test.each([8, 400])("a reset behind an answer ends %i calls", async (length) => {
    const { backend, proxy } = await connected(open());
    const start = performance.now();
    const calls = proxy.answerAndReset(() =>
      Array.from({ length }, () => backend.isLocked({ key: newKey() })),
    );
    const outcomes = await Promise.allSettled(calls);
    for (const one of outcomes) {
      if (one.status === "rejected")
        expect(one.reason).toHaveProperty("code", "ServiceUnavailable");
    }
    expect(outcomes.some(({ status }) => status === "fulfilled")).toBe(true);
    const held = await take(backend, newKey());
    expect(await held.release()).toEqual({ ok: true });
    expect(performance.now() - start).toBeLessThan(SOON_MS);
  });

  test.each(["destroy", "resetAndDestroy"] as const)(
    "a call does not go into a connection that the server has ended: %s",
    async (how) => {
      const { backend, proxy } = await connected(open());
      await using held = await backend.lock(newKey(), { ttlMs: 30_000 });
      // The thread is busy for a moment in which nothing comes, and calls before the event loop turns.
      for (const call of [
        () => backend.isLocked({ key: newKey() }),
        () => backend.extend({ lockId: held.lockId, ttlMs: 30_000 }),
        () => held.eval("return 1"),
      ]) {
        proxy.end(how);
        block(20);
        await expect(call()).resolves.toBeDefined();
      }
    },
  );
});

test("no socket is closed that the event loop still watches", async () => {
  const folder = temporaryFolder();
  onTestFinished(folder.remove);
  const fixture = (name: string): string =>
    fileURLToPath(new URL(`fixtures/${name}`, import.meta.url));
  const library = join(folder.path, "closed.so");
  execFileSync("cc", ["-shared", "-fPIC", "-o", library, fixture("closed.c")]);
  const args = [fixture("reconnect.mjs"), String(plain.port)];
  const { finished } = startProgram(process.execPath, args, { LD_PRELOAD: library });
  expect(await finished).toEqual({ code: 0, signal: null, stdout: "5\n", stderr: "" });
});
