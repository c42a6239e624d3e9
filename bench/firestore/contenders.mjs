// Who takes part: each has `pair(index)`, which takes and releases a lock of its own.

import { Firestore } from "@google-cloud/firestore";
import { typescriptLibrary } from "../../__test__/firestore/fixtures/typescript-library.mjs";
import { built } from "../lib/built.mjs";
import { pairOf } from "../lib/pair.mjs";

/** Each has a project of its own on the emulator. */
export const open = {
  /** This package, over its own connection. */
  syncguard({ from, host, projectId }) {
    const { createFirestoreBackend } = built(from, "syncguard/firestore");
    return { pair: pairOf(createFirestoreBackend({ projectId, emulatorHost: host })) };
  },

  /** The transactions of the TypeScript library, on Google's client. */
  canonical({ host, projectId }) {
    const db = new Firestore({ projectId, host, ssl: false });
    return { pair: pairOf(typescriptLibrary(db)) };
  },
};
