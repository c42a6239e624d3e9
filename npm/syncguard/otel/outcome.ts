import type { Attributes } from "@opentelemetry/api";
import type { Observation } from "../watching/events.js";
import { LockError } from "../native/errors.js";

/** What OpenTelemetry's conventions call the stores. */
const SYSTEMS: Readonly<Record<string, string>> = {
  redis: "redis",
  postgres: "postgresql",
  firestore: "gcp.firestore",
  sqlite: "sqlite",
};

/** The attributes of everything that is told of a backend. */
export function attributesOfBackend(backend: string): Attributes {
  const attributes: Attributes = { "syncguard.backend": backend };
  const system = SYSTEMS[backend];
  if (system !== undefined) attributes["db.system.name"] = system;
  return attributes;
}

/** The attributes that metrics and spans have in common: few values, and nothing of users. */
export function attributesOf(seen: Observation, backend: string): Attributes {
  const attributes: Attributes = {
    ...attributesOfBackend(backend),
    "syncguard.outcome": outcomeOf(seen),
  };
  const code = errorOf(seen)?.code;
  if (code !== undefined) attributes["error.type"] = code;
  return attributes;
}

/** What metrics and spans call the operations that they tell of. */
export function operationOf({ type }: Observation): string | undefined {
  switch (type) {
    case "acquire":
    case "release":
    case "extend":
      return type;
    case "forceRelease":
      return "force_release";
    default:
      return undefined;
  }
}

/** What an operation has failed with, if it has. */
export function errorOf({ error }: Pick<Observation, "error">): LockError | undefined {
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
