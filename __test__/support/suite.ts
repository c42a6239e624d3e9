import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect } from "vitest";
import type { SyncGuardBackend } from "syncguard";
import { type BehaviorOptions, type Store } from "./backends";
import { stopSharedCluster } from "./redis-stores";
import { storesOf } from "./ways";

export type Backend = SyncGuardBackend;
export type Connect = (options?: BehaviorOptions) => Backend;

/** Defines the tests of one behaviour for every store, and for other ways to it as `ways.ts` says. `define` gets the store's name, too. */
export function onEveryStore(
  behavior: string,
  define: (connect: Connect, name: string) => void,
): void {
  stopSharedCluster();
  describe.each(storesOf(expect.getState().testPath))(`${behavior} on %s`, (name, open) => {
    let store: Store;
    beforeAll(async () => {
      store = await open();
    });
    afterAll(async () => {
      await store.close();
    });
    define((options) => store.connect(options), name);
  });
}

/** A key that no other test uses. */
export function newKey(): string {
  return `key:${randomUUID()}`;
}

/** Takes a lock that must be free. */
export async function take(backend: Backend, key: string, ttlMs = 30_000) {
  const result = await backend.acquire({ key, ttlMs });
  if (!result.ok) throw new Error("expected the lock to be free");
  return result;
}
