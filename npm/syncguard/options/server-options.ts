/** Checks of the options that backends on servers have in common. */

import { checkObject, invalid } from "./validation.js";

/** @throws LockError `InvalidArgument` that names the option */
export function checkServerOptions(options: unknown): void {
  checkObject(options, "options");
  const { cleanupInIsLocked, operationTimeoutMs, connectTimeoutMs, transport } = options as Record<
    string,
    unknown
  >;
  checkBooleans({ cleanupInIsLocked });
  for (const [name, ms] of Object.entries({ operationTimeoutMs, connectTimeoutMs })) {
    if (ms !== undefined && !isTimeout(ms)) {
      throw invalid(`${name} must be from 1 to ${LONGEST_TIMEOUT_MS} milliseconds`);
    }
  }
  if (transport !== undefined && transport !== "native" && transport !== "client") {
    throw invalid('transport must be "native" or "client"');
  }
}

/** Refuses what is given and is not of the type; options go by their names. */
export function checkBooleans(options: Readonly<Record<string, unknown>>): void {
  checkTypes(options, "boolean");
}

/** The same for texts. */
export function checkStrings(options: Readonly<Record<string, unknown>>): void {
  checkTypes(options, "string");
}

function checkTypes(options: Readonly<Record<string, unknown>>, type: "boolean" | "string"): void {
  for (const [name, value] of Object.entries(options)) {
    if (value !== undefined && typeof value !== type) throw invalid(`${name} must be a ${type}`);
  }
}

/** The longest that timers of Node can take. */
const LONGEST_TIMEOUT_MS = 2_147_483_647;

function isTimeout(ms: unknown): boolean {
  return typeof ms === "number" && ms >= 1 && ms <= LONGEST_TIMEOUT_MS;
}
