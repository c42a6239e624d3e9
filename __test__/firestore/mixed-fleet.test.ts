/** Processes on the TypeScript library and on this one share one database. */

import type { Firestore } from "@google-cloud/firestore";
import { afterAll, beforeAll } from "vitest";
import { createFirestoreBackend } from "syncguard/firestore";
import { anyEmulator, type Emulator, googleClient, newProject } from "../support/firestore";
import { type Library, testFleet, testSides } from "../support/mixed-fleet";
import type { Backend } from "../support/suite";
// @ts-expect-error a program of its own, in plain JavaScript
import { typescriptLibrary } from "./fixtures/typescript-library.mjs";

const projectId = newProject();
let emulator: Pick<Emulator, "host" | "stop">;
let db: Firestore;
let backend: Backend;
let theirs: Library;
beforeAll(async () => {
  emulator = await anyEmulator();
  db = googleClient(emulator.host, projectId);
  backend = createFirestoreBackend(db);
  theirs = (typescriptLibrary as (db: Firestore) => Library)(db);
});
afterAll(async () => {
  await backend.close();
  await db.terminate();
  await emulator.stop();
});

testFleet({
  program: "../../firestore/fixtures/fleet.mjs",
  members: () =>
    ["ours", "theirs", "ours", "theirs"].map((mainly) => [emulator.host, projectId, mainly]),
  goal: 40,
  given: async () => {
    const { docs } = await db.collection("given").get();
    const at = (doc: (typeof docs)[number]) => doc.createTime.valueOf();
    const fences = new Map<string, string[]>();
    for (const doc of docs.sort((a, b) => at(a).localeCompare(at(b)))) {
      const { key, fence } = doc.data() as { key: string; fence: string };
      fences.set(key, [...(fences.get(key) ?? []), fence]);
    }
    return [...fences.values()];
  },
});

testSides({
  ours: () => backend,
  theirs: () => theirs,
  nowMs: () => Promise.resolve(Date.now()),
});
