/** A primary that no more than half of the Sentinels name: it is told of. */

import { Redis } from "ioredis";
import { expect, onTestFinished, test, vi } from "vitest";
import { instrument } from "syncguard/otel";
import { createRedisBackend } from "syncguard/redis";
import { startMeter } from "../support/meter";
import { freePort } from "../support/ports";
import { startRedis } from "../support/redis";
import { newKey } from "../support/suite";

/** Sentinels of which one is there. */
async function startSentinels(count: number): Promise<number[]> {
  const primary = await startRedis();
  const sentinel = await startRedis({
    mode: "sentinel",
    lines: [`sentinel monitor main 127.0.0.1 ${primary.port} 1`],
  });
  onTestFinished(async () => {
    await Promise.all([primary.stop(), sentinel.stop()]);
  });
  const gone = Array.from({ length: count - 1 }, freePort);
  return [sentinel.port, ...(await Promise.all(gone))];
}

const METRIC = "syncguard.sentinel.minorities";
const OF = { "syncguard.backend": "redis", "db.system.name": "redis" };

test.each([3, 2])("one of %i Sentinels", async (known) => {
  const warn = vi.spyOn(console, "warn").mockReturnValue(undefined);
  onTestFinished(() => warn.mockRestore());
  const sentinels = await startSentinels(known);
  const { meterProvider, counted } = startMeter(METRIC);
  const url = `redis+sentinel://${sentinels.map((port) => `127.0.0.1:${port}`).join(",")}/main`;
  const backend = instrument(createRedisBackend(url), { meterProvider });
  onTestFinished(backend.close);
  expect(await backend.isLocked({ key: newKey() })).toBe(false);
  await vi.waitFor(async () => expect(await counted()).toEqual([{ ...OF, value: 1 }]));
  // The connection of what extends itself is another one.
  await (await backend.lock(newKey(), { autoExtend: true })).release();
  await vi.waitFor(async () => expect(await counted()).toEqual([{ ...OF, value: 2 }]));
  expect(warn.mock.calls).toEqual([
    [expect.stringContaining(`[SyncGuard] Only 1 of ${known} Sentinels names the primary`)],
  ]);
});

test("backends over one client's settings hear of it together", async () => {
  const warn = vi.spyOn(console, "warn").mockReturnValue(undefined);
  onTestFinished(() => warn.mockRestore());
  const ports = await startSentinels(3);
  const sentinels = ports.map((port) => ({ host: "127.0.0.1", port }));
  const client = new Redis({ sentinels, name: "main", lazyConnect: true });
  const { meterProvider, counted } = startMeter(METRIC);
  const backends = [1, 2].map(() => instrument(createRedisBackend(client), { meterProvider }));
  for (const { close } of backends) onTestFinished(close);
  for (const backend of backends) expect(await backend.isLocked({ key: newKey() })).toBe(false);
  await vi.waitFor(async () => expect(await counted()).toEqual([{ ...OF, value: 2 }]));
  expect(warn).toHaveBeenCalledTimes(1);
});

test("the only Sentinel", async () => {
  const warn = vi.spyOn(console, "warn").mockReturnValue(undefined);
  onTestFinished(() => warn.mockRestore());
  const [port] = await startSentinels(1);
  const { meterProvider, counted } = startMeter(METRIC);
  const url = `redis+sentinel://127.0.0.1:${port}/main`;
  const backend = instrument(createRedisBackend(url), { meterProvider });
  onTestFinished(backend.close);
  expect(await backend.isLocked({ key: newKey() })).toBe(false);
  expect(await counted()).toBeUndefined();
  expect(warn).not.toHaveBeenCalled();
});
