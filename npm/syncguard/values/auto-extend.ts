/** Reads the option `autoExtend`. */

import { checkObject, invalid } from "../options/validation.js";
import { optionNames, refuseUnknown } from "../options/names.js";
import type { AutoExtend, AutoExtendOptions } from "./types.js";

/** How a lock is extended, in milliseconds; `Infinity` where there is no limit. */
export type HeartbeatOptions = Readonly<Required<Record<keyof AutoExtendOptions, number>>>;

/** The default of `maxStallMs`. */
const MAX_STALL_MS = 30_000;

const OPTIONS = optionNames("autoExtend", ["everyMs", "maxMs", "maxStallMs"]);

/**
 * Checks the option for a lock that lasts `ttlMs`; `undefined` if the lock is not to extend itself.
 *
 * @throws LockError `InvalidArgument` that names the field
 */
export function readAutoExtend(
  autoExtend: AutoExtend | null | undefined,
  ttlMs: number,
): HeartbeatOptions | undefined {
  if (autoExtend === undefined || autoExtend === null || autoExtend === false) return undefined;
  const options: AutoExtendOptions = autoExtend === true ? {} : autoExtend;
  if (autoExtend !== true) {
    checkObject(options, "autoExtend");
    refuseUnknown(options, OPTIONS);
  }
  const everyMs = read(options, "everyMs") ?? ttlMs / 3;
  if (everyMs >= ttlMs) throw invalid("autoExtend.everyMs must be less than ttlMs");
  return {
    everyMs,
    maxMs: read(options, "maxMs") ?? Infinity,
    maxStallMs: read(options, "maxStallMs") ?? MAX_STALL_MS,
  };
}

function read(options: AutoExtendOptions, name: keyof AutoExtendOptions): number | undefined {
  const ms = options[name] ?? undefined;
  if (ms === undefined || (typeof ms === "number" && ms > 0)) return ms;
  throw invalid(`autoExtend.${name} must be a positive number of milliseconds`);
}
