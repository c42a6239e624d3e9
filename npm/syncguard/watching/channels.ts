/** Diagnostics channels, for those without OpenTelemetry: each costs nothing while nobody listens. */

import { type Channel, channel } from "node:diagnostics_channel";
import { LockError } from "../native/errors.js";
import type { Observation, Stream } from "./events.js";
import type { DiagnosticsMessage } from "../values/types.js";
import type { BackendTransport } from "../options/backend-transport.js";
import { hashesOf, hashKey } from "../values/values.js";

const channels: Readonly<Record<DiagnosticsMessage["type"], Channel>> = {
  acquire: channel("syncguard:acquire"),
  release: channel("syncguard:release"),
  extend: channel("syncguard:extend"),
  isLocked: channel("syncguard:isLocked"),
  lookup: channel("syncguard:lookup"),
  forceRelease: channel("syncguard:forceRelease"),
  mark: channel("syncguard:mark"),
  lost: channel("syncguard:lost"),
  wait: channel("syncguard:wait"),
};

/** Publishes what is seen of a backend of that name. */
export function publisher(backend: string, transport?: BackendTransport): Stream {
  return {
    hears: (type) => channels[type].hasSubscribers,
    // What a subscriber throws is reported by the channel itself.
    tell(seen) {
      const to = channels[seen.type];
      if (to.hasSubscribers) to.publish(messageOf(seen, backend, transport));
    },
  };
}

function messageOf(
  seen: Observation,
  backend: string,
  transport: BackendTransport | undefined,
): DiagnosticsMessage {
  const { type, result, key, keys, lockId, error, reason, durationMs, ...more } = seen;
  delete more.contended;
  const message: DiagnosticsMessage = { backend, type, result, ...more };
  if (durationMs !== undefined) message.durationMs = durationMs;
  if (transport !== undefined) message.transport = transport.way;
  // Callers may pass anything as an identifier.
  if (typeof key === "string") message.keyHash = hashKey(key);
  if (keys !== undefined) Object.assign(message, hashesOf(keys));
  if (typeof lockId === "string") message.lockIdHash = hashKey(lockId);
  if (reason !== undefined) message.reason = reason;
  if (error !== undefined) message.error = error instanceof LockError ? error.code : "Internal";
  return message;
}
