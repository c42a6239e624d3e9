// What is told of operations.

import type { LockErrorCode } from "../native/errors.js";
import type { BackendTransport } from "../options/backend-transport.js";
import type { HashId } from "./names.js";

/** An event of telemetry, which reports one operation, or the loss of a lock. */
export type LockEvent = {
  /** Which operation; `"lost"` when a lock was lost, `"mark"` when somebody has changed what is stored as done. */
  type: "acquire" | "release" | "extend" | "isLocked" | "lookup" | "forceRelease" | "mark" | "lost";
  /** Whether it gave what was asked for: `"fail"` for contention, an absent lock, `false`, `null` and errors. */
  result: "ok" | "fail";
  /** `hashKey(key)`, when the operation has a key. */
  keyHash?: HashId;
  /** How many keys the operation is about, when it has several; how many lock ids, where only those are known. */
  claims?: number;
  /** `hashKey(key)` of each of them. */
  keyHashes?: HashId[];
  /** `"shared"` for an acquisition, or a wait, of one lock in shared mode. */
  mode?: "shared";
  /** `hashKey(lockId)`, when the operation has a lock id. */
  lockIdHash?: HashId;
  /** Why an acquisition, release or extension did nothing, when known; `"done"` and `"ahead"` only for `once()`. */
  reason?: "locked" | "done" | "ahead" | "expired" | "not-found";
  /** How long `lock()` has waited, in milliseconds: in all, or on a backend of your own until the end of this attempt. */
  waitMs?: number;
  /** How many attempts it has made until then; 0 if its time was over, or it was cancelled, before its turn came. */
  attempts?: number;
  /** How many times it was told that the lock may be free. */
  wakeups?: number;
  /** Milliseconds for which the lock was held. Only for `"lost"` and for what releases a lock by its handle. */
  heldMs?: number;
  /** How many heartbeats have extended the lock. Only beside `heldMs`, for a lock that extends itself. */
  extensions?: number;
  /** Whether the lock was lost before it was released, as its handle knew or its release has found. Only beside `heldMs`. */
  lost?: boolean;
  /** Who did it, by the name that `authorize()` of a dashboard gave; only for changes by a dashboard. */
  by?: string;
  /** The key; only if `includeRaw` allows. */
  key?: string;
  /** Several keys; only if `includeRaw` allows. */
  keys?: readonly string[];
  /** The lock id; only if `includeRaw` allows. */
  lockId?: string;
};

/**
 * A message on one of the channels `syncguard:acquire`, `…:release`, `…:extend`, `…:isLocked`, `…:lookup`, `…:forceRelease`,
 * `…:mark`, `…:lost` and `…:wait` of `node:diagnostics_channel`. Only backends of this package publish. Members that it shares with
 * {@link LockEvent} mean the same.
 */
export interface DiagnosticsMessage extends Pick<
  LockEvent,
  | "result"
  | "keyHash"
  | "claims"
  | "keyHashes"
  | "mode"
  | "lockIdHash"
  | "reason"
  | "waitMs"
  | "attempts"
  | "wakeups"
  | "heldMs"
  | "extensions"
  | "lost"
  | "by"
> {
  /** What was done; `"wait"` is the end of the waiting of `lock()`, whatever came of it. */
  type: LockEvent["type"] | "wait";
  /** The store, as in the backend's `capabilities`. */
  backend: string;
  /** Which way the backend takes to its server; absent if it needs none. */
  transport?: BackendTransport["way"];
  /** What the operation or the wait has failed with. Contention is no error of an attempt, but one of a wait. */
  error?: LockErrorCode;
  /** Milliseconds that an operation took. */
  durationMs?: number;
}

/** Options of `withTelemetry()`. */
export interface TelemetryOptions {
  /** Called for each operation. Not awaited; what it throws is ignored. */
  onEvent: (event: LockEvent) => void;
  /** Whether events carry raw identifiers. Default false; a predicate that throws means false. */
  includeRaw?: boolean | ((event: LockEvent) => boolean) | undefined;
}
