/** Scripts of users' own, which run only while a lock is held. */

import { addContext, LockError } from "../native/errors.js";
import { checkAborted, readSignal } from "../native/signal.js";
import { optionNames, refuseUnknown } from "../options/names.js";
import { checkObject, invalid } from "../options/validation.js";
import { checkNotLost } from "../holding/guard.js";
import type { DirectAccess } from "../holding/internals.js";
import type { Lease } from "../holding/lease.js";
import type { RedisEvalOptions, RedisGuard, RedisReply } from "./members.js";
import { checkText } from "../values/values.js";

const OPTIONS = optionNames("eval()", ["keys", "arguments", "signal"]);

/** What the locks of a backend have beside the methods of all. */
export function scripting(lease: Lease, direct: DirectAccess): RedisGuard {
  return { eval: (script, options) => runScript(lease, direct, script, options) };
}

/** Runs a script if the lock is held, and else ends it: then it is lost. */
async function runScript(
  lease: Lease,
  direct: DirectAccess,
  script: string,
  optionsOrNull: RedisEvalOptions | null | undefined,
): Promise<RedisReply> {
  const { key } = lease;
  try {
    checkText(script, "script");
    const options = optionsOrNull ?? {};
    checkObject(options, "options");
    refuseUnknown(options, OPTIONS);
    const keys = listOf(options.keys, "keys", text);
    const args = listOf(options.arguments, "arguments", argument);
    const signal = readSignal(options.signal);
    checkAborted(signal);
    checkNotLost(lease);
    const { lockIds, storedKeys } = lease;
    const settings = { lockIds, locks: storedKeys, script, keys, arguments: args };
    const outcome = await direct(key, signal, (store) => store.eval(settings, signal));
    if (typeof outcome === "object" && "text" in outcome) {
      return replyOf(JSON.parse(outcome.text) as RawReply);
    }
    throw lease.lostBefore(
      LOST,
      undefined,
      lockIds[typeof outcome === "object" ? outcome.lock : 0],
    );
  } catch (error) {
    throw addContext(error, key);
  }
}

const LOST = "the lock was lost: it was gone when a script was to run under it";

/** As the addon gives it. */
type RawReply = string | number | null | { readonly error: string } | RawReply[];

function replyOf(raw: RawReply): RedisReply {
  if (Array.isArray(raw)) return raw.map(replyOf);
  return typeof raw === "object" && raw !== null ? new LockError("Internal", raw.error) : raw;
}

function listOf(
  list: unknown,
  name: string,
  read: (item: unknown, name: string) => string,
): string[] {
  if (list === undefined || list === null) return [];
  if (!Array.isArray(list)) throw invalid(`${name} must be an array`);
  // `map` leaves holes out.
  return Array.from(list, (item: unknown, place) => read(item, `${name}[${place}]`));
}

function text(value: unknown, name: string): string {
  checkText(value, name);
  return value;
}

function argument(value: unknown, name: string): string {
  if (Number.isFinite(value)) return String(value);
  if (typeof value !== "string") throw invalid(`${name} must be a string or a finite number`);
  return text(value, name);
}
