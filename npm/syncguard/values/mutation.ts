/** Conditions and results of release and extend. For authors of backends. */

import type { ExtendResult, LockOp, LocksOp, ReleaseResult } from "./types.js";

/**
 * The symbol under which failed releases and extensions carry `{ reason }` for telemetry, and nothing else sees it. A
 * backend of your own does the same with
 * `Object.defineProperty({ ok: false }, FAILURE_REASON, { value: { reason } })`.
 */
export const FAILURE_REASON: unique symbol = Symbol.for("failureReason") as never;

/** Why a release or an extension did nothing. */
export type MutationReason = "expired" | "not-found";

/** What a backend has found when it was asked to change a lock. */
export type MutationCondition =
  | "succeeded"
  | "observable-expired"
  | "never-existed"
  | "ownership-mismatch"
  | "cleaned-up-after-expiry"
  | "ambiguous-unknown";

/** The result that a condition leads to. */
export type MutationResult =
  | {
      /** The lock was released or extended. */
      ok: true;
    }
  | {
      /** Nothing was done. */
      ok: false;
      /** Why nothing was done. */
      reason: MutationReason;
    };

/** The state of a lock document. */
type DocumentState = {
  /** Whether there is a document for the lock. */
  documentExists: boolean;
  /** Whether it has the caller's lock id. */
  ownershipValid: boolean;
  /** Whether the lock has not ended yet, as `isLive` says. */
  isLive: boolean;
};

/**
 * The condition for the code of a Redis script or the state of a lock document.
 *
 * @example
 * ```ts
 * import { mapBackendObservation } from "syncguard/common";
 *
 * console.log(mapBackendObservation(1)); // "succeeded"
 * ```
 */
export function mapBackendObservation(observation: number | DocumentState): MutationCondition {
  return typeof observation === "number"
    ? mapRedisScriptResult(observation)
    : mapFirestoreConditions(observation);
}

/**
 * The condition for the code of a Redis script.
 *
 * @param code - 1: done; 0: another's lock; -1: no lock; -2: the lock had ended; any other is `"ambiguous-unknown"`
 * @example
 * ```ts
 * import { mapRedisScriptResult } from "syncguard/common";
 *
 * console.log(mapRedisScriptResult(-2)); // "observable-expired"
 * ```
 */
export function mapRedisScriptResult(code: number): MutationCondition {
  switch (code) {
    case 1:
      return "succeeded";
    case -2:
      return "observable-expired";
    case -1:
      return "never-existed";
    case 0:
      return "ownership-mismatch";
    default:
      return "ambiguous-unknown";
  }
}

/**
 * The condition for the state of a lock document.
 *
 * @example
 * ```ts
 * import { mapFirestoreConditions } from "syncguard/common";
 *
 * const state = { documentExists: true, ownershipValid: false, isLive: true };
 * console.log(mapFirestoreConditions(state)); // "ownership-mismatch"
 * ```
 */
export function mapFirestoreConditions(state: DocumentState): MutationCondition {
  if (!state.documentExists) return "never-existed";
  if (!state.ownershipValid) return "ownership-mismatch";
  return state.isLive ? "succeeded" : "observable-expired";
}

/**
 * The result for a condition: only an expiry that was seen counts as `"expired"`.
 *
 * For authors of backends. The results of `release` and `extend` show no reason: see {@link FAILURE_REASON}.
 *
 * @example
 * ```ts
 * import { mapToMutationResult } from "syncguard/common";
 *
 * console.log(mapToMutationResult("never-existed")); // { ok: false, reason: "not-found" }
 * ```
 */
export function mapToMutationResult(condition: MutationCondition): MutationResult {
  if (condition === "succeeded") return { ok: true };
  return { ok: false, reason: condition === "observable-expired" ? "expired" : "not-found" };
}

/**
 * `{ ok: false }` with a reason that only telemetry sees.
 *
 * @param lock - which of several locks is gone
 */
export function failure(reason: MutationReason, lock?: number): { ok: false } {
  return Object.defineProperty({ ok: false as const }, FAILURE_REASON, { value: { reason, lock } });
}

/** The reason that a failed result carries, if any. */
export function failureReason(result: ReleaseResult | ExtendResult): MutationReason | undefined {
  return carriedBy(result)?.reason;
}

/** The id of the lock that is gone, as a failed result says, of those that were asked for. */
export function goneLock(
  result: ReleaseResult | ExtendResult,
  asked: LockOp | LocksOp,
): string | undefined {
  const lock = carriedBy(result)?.lock;
  if (lock === undefined) return undefined;
  return "lockIds" in asked ? asked.lockIds[lock] : asked.lockId;
}

function carriedBy(result: object): { reason?: MutationReason; lock?: number } | undefined {
  return (
    result as { [FAILURE_REASON]?: { reason?: MutationReason; lock?: number } } | undefined
  )?.[FAILURE_REASON];
}
