// Who takes part: each has `pair(index)`, which takes and releases a lock of its own.

import { Firestore } from "@google-cloud/firestore";
import { typescriptLibrary } from "../../__test__/firestore/fixtures/typescript-library.mjs";

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

function pairOf(library) {
  return async (index) => {
    const result = await library.acquire({ key: `key:${index}`, ttlMs: 30_000 });
    if (!result.ok) throw new Error("nobody else can hold this lock");
    const { ok } = await library.release({ lockId: result.lockId });
    if (!ok) throw new Error("the lock was not released");
  };
}
