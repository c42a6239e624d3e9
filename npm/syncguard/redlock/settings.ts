/** What redlock's class is given, checked. */

import { openUrl } from "../default/backend.js";
import type { BackendLockOptions, SyncGuardBackend } from "../lock/types.js";
import { optionNames, warnOfUnknown } from "../options/names.js";
import { checkBooleans, checkObject, invalid } from "../options/validation.js";
import { createRedisBackend } from "../redis/backend.js";
import type { RedisClient } from "../redis/types.js";
import type { Client, RedlockSettings, Settings } from "./types.js";

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

/** @throws LockError `InvalidArgument` that names the setting */
export function readSettings(given: RedlockSettings = {}, base: Settings = DEFAULTS): Settings {
  checkObject(given, "settings");
  warnOfUnknown(given, OPTIONS);
  checkBooleans({ firstClientOnly: given.firstClientOnly });
  const settings: Settings = {
    driftFactor: given.driftFactor ?? base.driftFactor,
    retryCount: given.retryCount ?? base.retryCount,
    retryDelay: given.retryDelay ?? base.retryDelay,
    retryJitter: given.retryJitter ?? base.retryJitter,
    automaticExtensionThreshold:
      given.automaticExtensionThreshold ?? base.automaticExtensionThreshold,
  };
  for (const [name, value] of Object.entries(settings)) {
    const least = name === "retryCount" ? -1 : 0;
    if (typeof value !== "number" || !(value >= least && value < Infinity)) {
      throw invalid(`${name} must be a number, not smaller than ${least}`);
    }
  }
  if (!Number.isInteger(settings.retryCount)) throw invalid("retryCount must be an integer");
  if (settings.driftFactor >= 1) throw invalid("driftFactor must be less than 1");
  return settings;
}

/** How to wait by these settings: the mean of the waits is `retryDelay`. */
export function acquisitionOf({
  retryCount,
  retryDelay,
  retryJitter,
}: Settings): NonNullable<BackendLockOptions["acquisition"]> {
  const isRandom = retryJitter > 0;
  return {
    maxRetries: retryCount === -1 ? Infinity : retryCount,
    timeoutMs: Infinity,
    backoff: "fixed",
    // "equal" takes off up to a half.
    retryDelayMs: isRandom ? (retryDelay * 4) / 3 : retryDelay,
    jitter: isRandom ? "equal" : "none",
  };
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
}

/** What `backend.lock()` takes for the resources. @throws LockError `InvalidArgument` */
export function checkResources(resources: unknown): asserts resources is string[] {
  if (!Array.isArray(resources) || resources.length === 0) {
    throw invalid("resources must be an array that is not empty");
  }
}

/** The one client that is used. @throws LockError `InvalidArgument` */
export function onlyClient(clients: Iterable<Client>, settings: RedlockSettings): Client {
  const given = clients as Partial<Iterable<Client>> | null | undefined;
  if (typeof clients === "string" || typeof given?.[Symbol.iterator] !== "function") {
    throw invalid("clients must be an array with one client");
  }
  const [first, ...others] = clients;
  if (first === undefined || first === null) throw invalid("clients must have a client");
  if (others.length > 0 && settings.firstClientOnly !== true) {
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
