import { readFileSync } from "node:fs";
import { afterEach, expect, test } from "vitest";
import { vi } from "vitest";
import { createTestBackend } from "syncguard/testing";

afterEach(() => {
  vi.useRealTimers();
});

test("docs/testing.md, on fake timers", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date", "performance"] });
  const backend = createTestBackend();
  const held = await backend.lock("nightly-report", { ttlMs: 30_000, autoExtend: true });
  await vi.advanceTimersByTimeAsync(3_600_000); // extended all the time
  held.signal.throwIfAborted();
});

test("that is what it shows", () => {
  const read = (path: string): string => readFileSync(new URL(path, import.meta.url), "utf8");
  const [, shown = ""] = /^```ts vitest\n(.*?)^```$/ms.exec(read("../../docs/testing.md")) ?? [];
  const lines = shown.split("\n").filter((line) => line !== "");
  expect(lines.length).toBeGreaterThan(5);
  const run = read("./docs.test.ts")
    .split("\n")
    .map((line) => line.trim());
  expect(run).toEqual(expect.arrayContaining(lines));
});
