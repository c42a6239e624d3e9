/** What backends see when they release or extend, and what they report. For writers of backends. */

import type { ExtendResult, ReleaseResult } from "./types.js";

/** The symbol under which failed releases and extensions carry `{ reason }`. For telemetry only. */
export const FAILURE_REASON: unique symbol = Symbol.for("syncguard.failureReason") as never;

/** Why a release or an extension did nothing. */
export type FailureReason = "expired" | "not-found";

/** What a backend saw when it was asked to change a lock. */
export type MutationCondition =
  | "succeeded"
  | "observable-expired"
  | "never-existed"
  | "ownership-mismatch"
  | "cleaned-up-after-expiry"
  | "ambiguous-unknown";

/** What a condition comes to. */
export type MutationOutcome = { ok: true } | { ok: false; reason: FailureReason };

/** What a condition comes to: only an expiry that was seen counts as `"expired"`. */
export function mapBackendObservation(condition: MutationCondition): MutationOutcome {
  if (condition === "succeeded") return { ok: true };
  return { ok: false, reason: condition === "observable-expired" ? "expired" : "not-found" };
}

/** The condition that a Redis script's code stands for. */
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

/** The condition that a lock document's state stands for. */
export function mapFirestoreConditions(state: {
  documentExists: boolean;
  ownershipValid: boolean;
  isLive: boolean;
}): MutationCondition {
  if (!state.documentExists) return "never-existed";
  if (!state.ownershipValid) return "ownership-mismatch";
  return state.isLive ? "succeeded" : "observable-expired";
}

/** The result of an extension that came to `condition`. */
export function mapToMutationResult(
  condition: MutationCondition,
  details: { expiresAtMs: number },
): ExtendResult;
/** The result of a release that came to `condition`. */
export function mapToMutationResult(condition: MutationCondition): ReleaseResult;
export function mapToMutationResult(
  condition: MutationCondition,
  details?: { expiresAtMs: number },
): ReleaseResult | ExtendResult {
  const outcome = mapBackendObservation(condition);
  if (!outcome.ok) return failure(outcome.reason);
  return details === undefined ? { ok: true } : { ok: true, expiresAtMs: details.expiresAtMs };
}

/** `{ ok: false }` that carries its reason for telemetry, out of sight of everything else. */
export function failure(reason: FailureReason): { ok: false } {
  return Object.defineProperty({ ok: false as const }, FAILURE_REASON, { value: { reason } });
}

/** The reason that a failed result carries, if any. */
export function failureReason(result: ReleaseResult | ExtendResult): FailureReason | undefined {
  const carrier = result as { [FAILURE_REASON]?: { reason?: FailureReason } };
  return carrier[FAILURE_REASON]?.reason;
}
