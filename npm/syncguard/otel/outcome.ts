import type { Attributes } from "@opentelemetry/api";
import type { Observation } from "../lock/observation.js";
import { LockError } from "../native/errors.js";

/** The attributes that metrics and spans have in common: few values, and nothing of users. */
export function attributesOf(seen: Observation, backend: string): Attributes {
  const attributes: Attributes = {
    "syncguard.backend": backend,
    "syncguard.outcome": outcomeOf(seen),
  };
  const code = errorOf(seen)?.code;
  if (code !== undefined) attributes["error.type"] = code;
  return attributes;
}

/** What an operation has failed with, if it has. */
export function errorOf({ error }: Observation): LockError | undefined {
  if (error === undefined) return undefined;
  return error instanceof LockError ? error : new LockError("Internal");
}

function outcomeOf(seen: Observation): string {
  if (seen.error !== undefined) {
    const code = errorOf(seen)?.code;
    if (code === "Aborted") return "aborted";
    return code === "AcquisitionTimeout" ? "timeout" : "error";
  }
  if (seen.result === "ok") return "ok";
  return seen.reason ?? "gone";
}
