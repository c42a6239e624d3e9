/** Diagnostics channels, for those without OpenTelemetry: each costs nothing while nobody listens. */

import { type Channel, channel } from "node:diagnostics_channel";
import { LockError } from "../native/errors.js";
import type { Clock } from "./clock.js";
import {
  type Observation,
  type Observer,
  observedForce,
  observedOperations,
  observing,
  reports,
} from "./observation.js";
import type {
  BackendCapabilities,
  BackendTransport,
  DiagnosticsMessage,
  KeyLookup,
  OwnershipLookup,
  SyncGuardBackend,
} from "./types.js";
import { hashKey } from "./values.js";

type Type = DiagnosticsMessage["type"];

const channels: Readonly<Record<Type, Channel>> = {
  acquire: channel("syncguard:acquire"),
  release: channel("syncguard:release"),
  extend: channel("syncguard:extend"),
  isLocked: channel("syncguard:isLocked"),
  lookup: channel("syncguard:lookup"),
  forceRelease: channel("syncguard:forceRelease"),
  lost: channel("syncguard:lost"),
  wait: channel("syncguard:wait"),
};

/** Whether somebody wants to know for how long locks are held. */
export function isTimed(): boolean {
  return channels.release.hasSubscribers || channels.lost.hasSubscribers;
}

/** Whether anybody hears of lost locks. */
export function hearsOfLoss(): boolean {
  return channels.lost.hasSubscribers;
}

/** Whether anybody hears of waits, or of the acquisitions that end them. */
export function hearsOfWaits(): boolean {
  return channels.wait.hasSubscribers || channels.acquire.hasSubscribers;
}

/** Publishes what is seen of a backend of that name. */
export function publisher(backend: string, transport?: BackendTransport): Observer {
  return (seen) => {
    const to = channels[seen.type];
    // What a subscriber throws is reported by the channel itself.
    if (to.hasSubscribers) to.publish(messageOf(seen, backend, transport));
  };
}

/** Makes the operations of a backend publish what they do while anybody listens. */
export function publishOperations<C extends BackendCapabilities>(
  backend: SyncGuardBackend<C>,
  tell: Observer,
  clock: Clock,
): void {
  const { acquire, release, extend, isLocked, forceRelease } = backend;
  const lookup = backend.lookup.bind(backend);
  const observed = observedOperations<C>({ release, extend, isLocked, lookup }, tell, clock);
  backend.acquire = (opts) =>
    channels.acquire.hasSubscribers
      ? observing(tell, clock, "acquire", opts, () => acquire(opts), reports.acquire)
      : acquire(opts);
  backend.release = (opts) =>
    channels.release.hasSubscribers ? observed.release(opts) : release(opts);
  backend.extend = (opts) =>
    channels.extend.hasSubscribers ? observed.extend(opts) : extend(opts);
  backend.isLocked = (opts) =>
    channels.isLocked.hasSubscribers ? observed.isLocked(opts) : isLocked(opts);
  backend.lookup = (opts: KeyLookup | OwnershipLookup) =>
    channels.lookup.hasSubscribers ? observed.lookup(opts) : lookup(opts);
  const observedForceRelease = observedForce(forceRelease, tell, clock);
  backend.forceRelease = (key, options) =>
    channels.forceRelease.hasSubscribers
      ? observedForceRelease(key, options)
      : forceRelease(key, options);
}

function messageOf(
  seen: Observation,
  backend: string,
  transport: BackendTransport | undefined,
): DiagnosticsMessage {
  const { type, result, key, lockId, error, reason, durationMs, ...more } = seen;
  delete more.contended;
  const message: DiagnosticsMessage = { backend, type, result, ...more };
  if (durationMs !== undefined) message.durationMs = durationMs;
  if (transport !== undefined) message.transport = transport.way;
  // Callers may pass anything as an identifier.
  if (typeof key === "string") message.keyHash = hashKey(key);
  if (typeof lockId === "string") message.lockIdHash = hashKey(lockId);
  if (reason !== undefined) message.reason = reason;
  if (error !== undefined) message.error = error instanceof LockError ? error.code : "Internal";
  return message;
}
