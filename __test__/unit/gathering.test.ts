/** What the API says of a waiter that gathers several locks. The core's tests ask on every store how it does so. */

import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type LockEvent, withTelemetry } from "syncguard";
import { createSqliteBackend } from "syncguard/sqlite";
import { lockError } from "../support/errors";
import { temporaryFolder } from "../support/temp";
import { settle, until } from "../support/until";

type Backend = ReturnType<typeof createSqliteBackend>;

const acquisition = { timeoutMs: 300_000, maxRetries: Infinity, maxRetryDelayMs: 100 };

let folder: ReturnType<typeof temporaryFolder>;
/** That of the waiter, and that of another process. */
let backend: Backend;
let other: Backend;
beforeEach(() => {
  folder = temporaryFolder();
  const file = join(folder.path, "locks.db");
  [backend, other] = [createSqliteBackend(file), createSqliteBackend(file)];
});
afterEach(async () => {
  await Promise.all([backend.close(), other.close()]);
  folder.remove();
});

/** Waits until the waiter has gathered the first of its keys. */
const untilGathering = (): Promise<void> => until(() => other.isLocked({ key: "a" }));

test("releaseAll() ends its wait, and what it has gathered is freed", async () => {
  const held = await other.lock("b", { ttlMs: 600_000 });
  const waiting = lockError(backend.lock(["a", "b"], { acquisition }));
  await untilGathering();
  await backend.releaseAll();
  expect(await waiting).toMatchObject({
    code: "Aborted",
    message: "the backend grants no more locks: releaseAll() was called",
  });
  await until(async () => !(await other.isLocked({ key: "a" })));
  expect(await held.release()).toEqual({ ok: true });
  expect(await other.acquire({ claims: ["a", "b"], ttlMs: 60_000 })).toMatchObject({ ok: true });
});

test("no acquisition is told of before all of its locks are granted", async () => {
  const events: LockEvent[] = [];
  const observed = withTelemetry(backend, { onEvent: (event) => events.push(event) });
  const held = await other.lock("b", { ttlMs: 600_000 });
  const waiting = observed.lock(["a", "b"], { acquisition });
  await untilGathering();
  expect(events).toEqual([]);
  await held.release();
  const both = await waiting;
  await until(() => events.length > 0);
  await settle();
  expect(events).toMatchObject([{ type: "acquire", result: "ok", claims: 2 }]);
  await both.release();
});
