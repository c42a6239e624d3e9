import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { SyncGuardBackend } from "syncguard";
import { createFirestoreBackend } from "syncguard/firestore";
import { createPostgresBackend, setupSchema } from "syncguard/postgres";
import { createRedisBackend } from "syncguard/redis";
import { createSqliteBackend } from "syncguard/sqlite";
import { run, runtimes } from "../support/child";
import { anyEmulator, newProject } from "../support/firestore";
import { startPostgres } from "../support/postgres";
import { plainRedis } from "../support/redis";
import { newKey } from "../support/suite";
import { temporaryFolder } from "../support/temp";

type Place = {
  url: string;
  backend: SyncGuardBackend;
  env?: Record<string, string>;
  stop: () => Promise<void>;
};

/** A store of each kind, as another process can name it. */
const places: Readonly<Record<string, () => Promise<Place>>> = {
  SQLite: async () => {
    const folder = temporaryFolder();
    const file = join(folder.path, "locks.db");
    const url = `sqlite://${file}`;
    return { url, backend: createSqliteBackend(file), stop: async () => folder.remove() };
  },
  Redis: async () => {
    const { url, stop } = await plainRedis();
    return { url, backend: createRedisBackend(url), stop };
  },
  PostgreSQL: async () => {
    const { url, stop } = await startPostgres();
    await setupSchema(url);
    return { url, backend: createPostgresBackend(url), stop };
  },
  Firestore: async () => {
    const { host, stop } = await anyEmulator();
    const projectId = newProject();
    const backend = createFirestoreBackend({ projectId, emulatorHost: host });
    const env = { FIRESTORE_EMULATOR_HOST: host };
    return { url: `firestore://${projectId}`, backend, env, stop };
  },
};

describe.each(Object.entries(places))("what is left to the background on %s", (_, open) => {
  let place: Place;
  beforeAll(async () => {
    place = await open();
  });
  afterAll(async () => {
    await place.backend.close();
    await place.stop();
  });
  const isLocked = async (key: string): Promise<boolean> => await place.backend.isLocked({ key });

  test.each(runtimes)("is done before a process of %s ends", async (runtime) => {
    const [prefix, count] = [newKey(), 100];
    const { code, stdout, stderr } = await run(
      runtime,
      "abort-and-end.mjs",
      [place.url, prefix, String(count)],
      place.env,
    );
    const endedAt = Date.now();
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout.match(/Aborted/g)).toHaveLength(count);
    let held = 0;
    for (let number = 0; number < count; number += 1) {
      if (await isLocked(`${prefix}:${number}`)) held += 1;
    }
    expect(held).toBe(0);
    // It waits for its own releases, and not for the end of the locks, which last for a minute.
    expect(endedAt - Number(/done (\d+)/.exec(stdout)?.[1])).toBeLessThan(30_000);
  });

  test("is given back when a thread is terminated", { timeout: 120_000 }, async () => {
    const { code, stdout, stderr } = await run(
      "node",
      "undelivered.mjs",
      [place.url, newKey(), "10"],
      place.env,
    );
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(JSON.parse(stdout)).toEqual({ left: 0 });
  });
});
