/** `syncguard/firestore` */

import { notBuilt } from "./not-built.js";
import type {
  AsyncLock,
  BackendCapabilities,
  CommonBackendOptions,
  SyncGuardBackend,
} from "./types.js";

/** Firestore gives fencing tokens; the clock of the client decides. */
export interface FirestoreCapabilities extends BackendCapabilities {
  backend: "firestore";
  supportsFencing: true;
  timeAuthority: "client";
}

/** Options of the Firestore backend. */
export interface FirestoreBackendOptions extends CommonBackendOptions {
  /** The collection of locks. Default `"locks"`. */
  collection?: string | undefined;
  /** The collection of fence counters. Default `"fence_counters"`. */
  fenceCollection?: string | undefined;
}

/** The options with nothing left open. */
export interface FirestoreConfig {
  collection: string;
  fenceCollection: string;
  cleanupInIsLocked: boolean;
}

/** A lock as Firestore keeps it. */
export interface LockDocument {
  lockId: string;
  /** Milliseconds since the Unix epoch. */
  expiresAtMs: number;
  /** Milliseconds since the Unix epoch. */
  acquiredAtMs: number;
  key: string;
  fence: string;
}

/**
 * A backend that keeps locks in Firestore.
 *
 * @param db - a Firestore client, or connection options
 * @throws LockError `InvalidArgument`: not built yet
 */
export function createFirestoreBackend(
  db: unknown,
  options?: FirestoreBackendOptions,
): SyncGuardBackend<FirestoreCapabilities>;
export function createFirestoreBackend(): SyncGuardBackend<FirestoreCapabilities> {
  return notBuilt("Firestore");
}

/** `lock()` bound to a Firestore backend: see {@link createFirestoreBackend}. */
export function createLock(
  db: unknown,
  options?: FirestoreBackendOptions,
): AsyncLock<FirestoreCapabilities>;
export function createLock(): AsyncLock<FirestoreCapabilities> {
  return notBuilt("Firestore");
}
