/** What clients of Redis that show nothing but errors are believed to have. */

import { EventEmitter } from "node:events";
import { expect, test } from "vitest";
import type { Store } from "../../npm/syncguard/native/store.js";
import { hearing } from "../../npm/syncguard/options/client-events.js";
import { CONNECTION_EVENTS } from "../../npm/syncguard/redis/client-events.js";
import { settle, until } from "../support/until";

type Answer = { readonly resolve: () => void; readonly reject: (error: Error) => void };

/** A pool that answers when it is told to, and what a store hears of it. */
function scene() {
  const asked: Answer[] = [];
  const heard: boolean[] = [];
  const pool = Object.assign(new EventEmitter(), {
    totalClients: 1,
    eval: () => new Promise<void>((resolve, reject) => asked.push({ resolve, reject })),
  });
  const store = {
    clientIsConnected: (isConnected: boolean) => heard.push(isConnected),
    close: () => Promise.resolve(),
  } as unknown as Store;
  return { asked, heard, pool, store: hearing(store, pool, CONNECTION_EVENTS) };
}

test("a pool has a connection again when it answers after its last error", async () => {
  const { asked, heard, pool, store } = scene();
  pool.on("error", () => undefined);
  for (let error = 0; error < 3; error += 1) pool.emit("error", new Error("lost"));
  expect(asked).toHaveLength(1);
  // Another one of its connections may have answered.
  asked[0]!.resolve();
  await settle();
  expect({ asked: asked.length, heard }).toEqual({ asked: 2, heard: [false, false, false] });
  asked[1]!.resolve();
  await settle();
  expect({ asked: asked.length, heard }).toEqual({ asked: 2, heard: [false, false, false, true] });
  await store.close();
  expect(pool.eventNames()).toEqual(["error"]);
});

test("a pool that refuses is asked again", async () => {
  const { asked, heard, pool, store } = scene();
  pool.on("error", () => undefined);
  pool.emit("error", new Error("lost"));
  asked[0]!.reject(new Error("The client is offline"));
  await until(() => asked.length === 2);
  asked[1]!.resolve();
  await settle();
  expect(heard).toEqual([false, true]);
  await store.close();
});

test("an error that nobody else hears is still thrown", async () => {
  const { pool, store } = scene();
  expect(() => pool.emit("error", new Error("lost"))).toThrow("lost");
  await store.close();
});
