// Who takes part: each has `pair(index)`, which takes and releases a lock of its own.

import { Firestore } from "@google-cloud/firestore";
import { typescriptLibrary } from "../../__test__/firestore/fixtures/typescript-library.mjs";
import { pairOf } from "../lib/pair.mjs";

/** This package, over its own connection. */
export async function ours(host) {
  const { createFirestoreBackend } = await import("syncguard/firestore");
  const backend = createFirestoreBackend({ projectId: "ours", emulatorHost: host });
  return { pair: pairOf(backend), close: () => backend.close() };
}

/** The transactions of the TypeScript library, on Google's client. */
export function canonical(host) {
  const db = new Firestore({ projectId: "canonical", host, ssl: false });
  return { pair: pairOf(typescriptLibrary(db)), close: () => db.terminate() };
}
