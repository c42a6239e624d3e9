// Who takes part on Firestore: this package, and transactions on Google's client.

import { Firestore } from "@google-cloud/firestore";
import { createFirestoreBackend } from "syncguard/firestore";
import { typescriptLibrary } from "../../__test__/firestore/fixtures/typescript-library.mjs";
import { ours } from "./ours.mjs";
import { polling } from "./polling.mjs";

export const open = {
  syncguard: (host) => ours(createFirestoreBackend({ projectId: "ours", emulatorHost: host })),

  google(host) {
    const db = new Firestore({ projectId: "theirs", host, ssl: false });
    return { ...polling(typescriptLibrary(db), { retryMs: 100 }), close: () => db.terminate() };
  },
};
