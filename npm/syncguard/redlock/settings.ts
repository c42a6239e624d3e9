/** What redlock's class is given, checked. */

import { openUrl } from "../default/backend.js";
import { checkNoTime } from "../values/arguments.js";
import type { BackendLockOptions, LocksOp, SyncGuardBackend } from "../values/types.js";
import { normalizeAndValidateKey, validateLockId } from "../values/values.js";
import { constants } from "../native/constants.js";
import { delay } from "../native/signal.js";
import { optionNames, warnOfUnknown } from "../options/names.js";
import { checkBooleans, checkObject, invalid } from "../options/validation.js";
import { createRedisBackend } from "../redis/backend.js";
import type { RedisClient } from "../redis/types.js";
import type { Client, RedlockSettings, Settings } from "./types.js";

const { maxClaims, maxTtlMs } = constants;
const DEFAULTS: Settings = Object.freeze({
  driftFactor: 0.01,
  retryCount: 10,
  retryDelay: 200,
  retryJitter: 100,
  automaticExtensionThreshold: 500,
});
const OPTIONS = optionNames("Redlock", [...Object.keys(DEFAULTS), "firstClientOnly"]);
/** A lock must be longer than the threshold by so much. */
const SHORTEST_MS = 100;

/**
 * The settings that were given, and of `base` what was not.
 *
 * @throws LockError `InvalidArgument` that names the setting
 */
export function readSettings(
  overrides: RedlockSettings | null | undefined,
  base: Settings = DEFAULTS,
): Settings {
  if (overrides === undefined || overrides === null) return base;
  checkObject(overrides, "settings");
  // Whoever takes it for redlock's would hold more than he believes.
  if ("mode" in overrides)
    throw invalid("mode is no setting of redlock's: its locks are exclusive");
  warnOfUnknown(overrides, OPTIONS);
  checkBooleans({ firstClientOnly: overrides.firstClientOnly ?? undefined });
  const valueOf = (name: keyof Settings): number => numberOf(overrides, name) ?? base[name];
  const settings: Settings = {
    driftFactor: valueOf("driftFactor"),
    retryCount: valueOf("retryCount"),
    retryDelay: valueOf("retryDelay"),
    retryJitter: valueOf("retryJitter"),
    automaticExtensionThreshold: valueOf("automaticExtensionThreshold"),
  };
  checkSettings(settings);
  return settings;
}

function checkSettings(settings: Settings): void {
  const { retryCount } = settings;
  if (!(retryCount >= -1 && (retryCount === Infinity || Number.isInteger(retryCount)))) {
    throw invalid("retryCount must be an integer, not smaller than -1, or Infinity");
  }
  for (const [name, value] of Object.entries({ ...settings, retryCount: 0 })) {
    if (!(value >= 0 && value < Infinity)) {
      throw invalid(`${name} must be a number, not smaller than 0`);
    }
  }
  if (settings.driftFactor >= 1) throw invalid("driftFactor must be less than 1");
}

/** Settings whose values were told to be none. */
const ignored = new Set<string>();

/** redlock takes only numbers for settings: a text, as of the environment, is as if it were not there. This says so, once. */
function numberOf(settings: RedlockSettings, name: keyof Settings): number | undefined {
  const value: unknown = settings[name];
  if (typeof value === "number") return value;
  if (value !== undefined && value !== null && !ignored.has(name)) {
    ignored.add(name);
    process.emitWarning(`${name} of Redlock is a ${typeof value}, and is ignored: give a number`, {
      type: "SyncGuardWarning",
      code: "SYNCGUARD_IGNORED_SETTING",
    });
  }
  return undefined;
}

/** How to wait by these settings: the mean of the waits is `retryDelay`. */
export function acquisitionOf({
  retryCount,
  retryDelay,
  retryJitter,
}: Settings): NonNullable<BackendLockOptions["acquisition"]> {
  const isRandom = retryJitter > 0;
  return {
    maxRetries: limitOf(retryCount),
    timeoutMs: Infinity,
    backoff: "fixed",
    // "equal" takes off up to a half.
    retryDelayMs: isRandom ? (retryDelay * 4) / 3 : retryDelay,
    jitter: isRandom ? "equal" : "none",
  };
}

function limitOf(retryCount: number): number {
  return retryCount === -1 ? Infinity : retryCount;
}

/**
 * Tries again, as the settings say, what has failed because the store could not be reached.
 *
 * @param isWorthwhile - whether there is still a point in it
 */
export async function repeated<T>(
  { retryCount, retryDelay, retryJitter }: Settings,
  isWorthwhile: () => boolean,
  attempt: () => Promise<T>,
): Promise<T> {
  for (let retries = 0; ; retries += 1) {
    try {
      return await attempt();
    } catch (error) {
      const { code } = error as { code?: unknown };
      const passes = code === "ServiceUnavailable" || code === "NetworkTimeout";
      if (!passes || retries >= limitOf(retryCount) || !isWorthwhile()) throw error;
    }
    await delay(Math.max(0, retryDelay + (Math.random() * 2 - 1) * retryJitter));
  }
}

/** How `using` extends its lock. */
export function everyMsOf({ automaticExtensionThreshold }: Settings, duration: number): number {
  const everyMs = duration - automaticExtensionThreshold;
  if (everyMs < SHORTEST_MS) {
    throw invalid(
      `duration must be at least ${SHORTEST_MS} ms longer than automaticExtensionThreshold`,
    );
  }
  return Math.min(everyMs, duration - 1);
}

/** @throws LockError `InvalidArgument` */
export function checkDuration(duration: unknown): asserts duration is number {
  if (!Number.isInteger(duration) || (duration as number) < 1) {
    throw invalid("duration must be a positive integer, in milliseconds");
  }
  if ((duration as number) > maxTtlMs) throw invalid(`duration must not exceed ${maxTtlMs}`);
  checkNoTime(duration as number, "duration");
}

/** @throws LockError `InvalidArgument` that speaks of resources, where the backend would of keys */
export function checkResources(resources: unknown): asserts resources is string[] {
  if (!Array.isArray(resources) || resources.length === 0) {
    throw invalid("resources must be an array that is not empty");
  }
  if (resources.length > maxClaims) throw invalid(`resources must not be more than ${maxClaims}`);
  const names = new Set(resources.map((name, index) => checkResource(name, `resources[${index}]`)));
  if (names.size < resources.length) throw invalid("resources must not name one twice");
}

function checkResource(name: unknown, called: string): string {
  try {
    return normalizeAndValidateKey(name as string);
  } catch (error) {
    throw invalid((error as Error).message.replace(/^Key/, called));
  }
}

/** What names a lock for the backend. @throws LockError `InvalidArgument` */
export function idsOf({ value }: { readonly value: unknown }): LocksOp {
  const lockIds = String(value).split(",");
  try {
    lockIds.forEach(validateLockId);
  } catch {
    throw invalid("lock.value must be that of a lock of this class: redlock's own are others");
  }
  return { lockIds };
}

/** Refuses what would be other scripts. redlock leaves everything alone that is no function. */
export function checkScripts(scripts: unknown): void {
  const members = (scripts ?? {}) as Record<string, unknown>;
  for (const name of ["acquireScript", "extendScript", "releaseScript"]) {
    if (typeof members[name] === "function") throw invalid(`scripts cannot be replaced: ${name}`);
  }
}

/** The one client that is used. @throws LockError `InvalidArgument` */
export function onlyClient(
  clients: Iterable<Client>,
  settings: RedlockSettings | null | undefined,
): Client {
  const iterable = clients as Partial<Iterable<Client>> | null | undefined;
  if (typeof clients === "string" || typeof iterable?.[Symbol.iterator] !== "function") {
    throw invalid("clients must be an array with one client");
  }
  const [first, ...others] = clients;
  if (first === undefined || first === null) throw invalid("clients must have a client");
  if (others.length > 0 && settings?.firstClientOnly !== true) {
    throw invalid(
      `clients must have one client, and has ${others.length + 1}. redlock asks several independent servers, and a lock counts if a ` +
        "quorum, more than half of them, grants it. This class asks one store: one Redis with replicas, Sentinel or a Cluster goes on " +
        "when a server fails, and PostgreSQL with a synchronous replica loses nothing. Pass one client, or firstClientOnly: true " +
        'to use the first (docs/redlock.md, "Several clients")',
    );
  }
  return first;
}

/** A backend on what the client reaches. */
export function backendOf(client: Client): SyncGuardBackend {
  if (typeof client === "string") return openUrl(client, "clients[0]");
  const { acquire, lock } = client as Partial<SyncGuardBackend>;
  const isBackend = typeof acquire === "function" && typeof lock === "function";
  return isBackend ? (client as SyncGuardBackend) : createRedisBackend(client as RedisClient);
}
