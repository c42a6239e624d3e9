/** `syncguard/forrst`: the atomic-lock extension of Forrst, `urn:forrst:ext:atomicLock`. */

import { notBuilt } from "./not-built.js";
import type { FencingCapabilities, LockBackend } from "./types.js";

/** Answers the extension's options and its three functions. */
export interface AtomicLock {
  /** The extension's name on the wire. */
  readonly urn: "urn:forrst:ext:atomicLock";
}

/**
 * The atomic-lock extension on a backend.
 *
 * @throws LockError `InvalidArgument`: not built yet
 */
export function createAtomicLock(backend: LockBackend<FencingCapabilities>): AtomicLock;
export function createAtomicLock(): AtomicLock {
  return notBuilt("Forrst");
}
