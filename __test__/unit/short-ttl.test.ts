/** A TTL that may be one in seconds is told of in development. */

import { lock } from "syncguard";
import { createSqliteBackend } from "syncguard/sqlite";
import { expect, test, vi } from "vitest";
import { fakeBackend } from "../support/fake-backend";

test("a TTL of less than a second is warned of once, but not in production or tests", async () => {
  const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => undefined);
  const backend = createSqliteBackend();
  const takes = [
    async () => (await backend.acquire({ key: "acquire", ttlMs: 30 })).release(),
    async () => (await backend.lock("lock", { ttlMs: 30 })).release(),
    () => lock(backend, () => undefined, { key: "callback", ttlMs: 30 }),
    () => lock(fakeBackend(), () => undefined, { key: "another's", ttlMs: 30 }),
  ];
  for (const environment of ["production", "test"]) {
    vi.stubEnv("NODE_ENV", environment);
    for (const take of takes) await take();
  }
  vi.stubEnv("NODE_ENV", "development");
  await backend.lock("long", { ttlMs: 1_000 });
  expect(warn).not.toHaveBeenCalled();
  for (const take of takes) await take();
  expect(warn.mock.calls).toEqual([
    [
      expect.stringMatching(/^ttlMs is 30: .*seconds meant/),
      { type: "SyncGuardWarning", code: "SYNCGUARD_SHORT_TTL" },
    ],
  ]);
  await backend.close();
});
