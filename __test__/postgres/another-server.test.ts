/** Sessions that were lost, and a server that lacks what it had: what nobody extends is asked after, too. */

import postgres from "postgres";
import { expect, onTestFinished, test } from "vitest";
import { createPostgresBackend, setupSchema } from "syncguard/postgres";
import { startPostgres } from "../support/postgres";
import { newKey } from "../support/suite";
import { until } from "../support/until";

test("holders whose locks nobody extends are told long before these end", async () => {
  const server = await startPostgres();
  onTestFinished(server.stop);
  await setupSchema(server.url);
  const lost: string[] = [];
  const backend = createPostgresBackend(server.url);
  onTestFinished(backend.close);
  const [single, told, unheard] = [newKey(), newKey(), newKey()];
  const pair = [newKey(), newKey()];
  const ttlMs = 300_000;
  const held = await backend.lock(single, { ttlMs });
  await backend.lock(told, { ttlMs, onLost: (_, { key }) => void lost.push(key) });
  const set = await backend.lock(pair, { ttlMs });
  await backend.lock(unheard, { ttlMs });
  const signals = [held.signal, set.signal];
  const admin = postgres(server.url);
  onTestFinished(() => admin.end());
  await admin`DELETE FROM syncguard_locks`;
  await admin`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'`;
  // Whoever connects again calls for another reason.
  const works = () =>
    backend.isLocked({ key: newKey() }).then(
      () => true,
      () => false,
    );
  await until(works);
  await until(() => signals.every((signal) => signal.aborted) && lost.length > 0);
  for (const signal of signals) {
    expect(signal.reason).toMatchObject({
      code: "LockLost",
      message: "the lock was lost: the store no longer has it",
    });
  }
  expect(lost).toEqual([told]);
});
