/** Firestore as the behaviour suites see it. */

import type { SyncGuardBackend } from "syncguard";
import {
  createFirestoreBackend,
  type FirestoreBackendOptions,
  type FirestoreClient,
  type FirestoreConnectionOptions,
} from "syncguard/firestore";
import type { Store } from "./backends";
import { anyEmulator, googleClient, newProject } from "./firestore";
import { PATIENT } from "./in-time";

/** Over a native connection from options. */
export async function firestoreByOptions(): Promise<Store> {
  const { host, stop } = await anyEmulator();
  return backendsOn({ projectId: newProject(), emulatorHost: host }, {}, stop);
}

/** Over a client of Google, on either transport. */
export async function firestoreByClient(transport: "native" | "client"): Promise<Store> {
  const { host, stop } = await anyEmulator();
  const client = googleClient(host);
  // What the client loads at its first call takes long on a busy machine, and is no time of the store's.
  await client.doc("loaded/already").get();
  return backendsOn(client, { transport }, async () => {
    await client.terminate();
    await stop();
  });
}

function backendsOn(
  db: FirestoreClient | FirestoreConnectionOptions,
  fixed: FirestoreBackendOptions,
  stop: () => Promise<void>,
): Store {
  const opened: SyncGuardBackend[] = [];
  return {
    connect: (options) => {
      const backend = createFirestoreBackend(db, { ...PATIENT, ...fixed, ...options });
      opened.push(backend);
      return backend;
    },
    close: async () => {
      await Promise.all(opened.map((backend) => backend.close()));
      await stop();
    },
  };
}
