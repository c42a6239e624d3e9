/** The extension's rules. They are in the core: this module calls it and parses its JSON. */

import { LockError } from "../native/errors.js";
import type { ForrstFound, ForrstRelease } from "../native/exports.js";
import type { StartOn } from "../native/store.js";
import { addon, type ForrstOptions } from "./addon.js";
import type { ForrstError, ForrstRequest, ForrstResponse } from "./types.js";

/** The extension's name, and those of its functions. */
export const URNS = addon.forrstUrns() as {
  readonly urn: "urn:forrst:ext:atomicLock";
  readonly release: "urn:cline:forrst:ext:atomic-lock:fn:release";
  readonly forceRelease: "urn:cline:forrst:ext:atomic-lock:fn:force-release";
  readonly status: "urn:cline:forrst:ext:atomic-lock:fn:status";
};

/** Thrown inside this package when a request has to be answered with an error. */
export class Refusal extends Error {
  constructor(
    readonly error: ForrstError,
    /** The extension's data beside the error. */
    readonly data?: unknown,
  ) {
    super(error.message);
  }

  /** The response that says why `request` is refused. */
  responseTo({ protocol, id }: ForrstRequest): ForrstResponse {
    const response = { protocol, id, result: null, errors: [this.error] };
    const { data } = this;
    return data === undefined ? response : { ...response, extensions: [{ urn: URNS.urn, data }] };
  }
}

/** The extension's options in one request. */
export interface RequestedLock {
  readonly fullKey: string;
  readonly ttlMs: number;
  readonly owner: string;
  /** What is stored as the lock's owner. */
  readonly label: string;
  readonly autoRelease: boolean;
  readonly waiting: ForrstOptions["waiting"];
  /** The extension's data in the response. */
  acquired(expiresAtMs: number, lost: boolean): unknown;
  /** The refusal for a lock that others kept. */
  contention(): Refusal;
}

/** Reads the options of a request that calls `functionName`. Throws a {@link Refusal}. */
export function readOptions(functionName: string, options: unknown): RequestedLock {
  const json = toJson(options, "options");
  const answers = call(() => new addon.ForrstOptions(functionName, json));
  const { fullKey, ttlMs, owner, label, autoRelease, waiting } = answers;
  return {
    fullKey,
    ttlMs,
    owner,
    label,
    autoRelease,
    waiting,
    acquired: (expiresAtMs, lost) => parse(() => answers.acquired(expiresAtMs, lost)),
    contention: () => refusalOf(() => answers.contention()),
  };
}

/** A call of the release function. It throws a {@link Refusal} if the release is refused. */
export class ReleaseCall {
  /** The full key of the lock. */
  readonly key: string;
  private readonly native: ForrstRelease;

  constructor(args: unknown) {
    this.native = call(() => new addon.ForrstRelease(toJson(args, "arguments")));
    this.key = this.native.key;
  }

  /** Starts all of it. */
  readonly start: StartOn = (handle, operation, cancellable) => {
    this.native.start(handle, operation, cancellable);
  };

  /** The result, once the operation that `start` began has ended. */
  answer(): unknown {
    return parse(() => this.native.answer());
  }

  /** The lock that a lookup found, if the caller may release it. */
  owned<Found extends ForrstFound>(found: Found | null): Found {
    call(() => this.native.checkOwner(found));
    return found as Found;
  }

  /** The result of the release of that lock. If there was nothing to release, `absent` says why. */
  released(absent: string | undefined): unknown {
    return parse(() => this.native.released(absent));
  }
}

export const rules = {
  keyArgument: (args: unknown): string =>
    call(() => addon.forrstKeyArgument(toJson(args, "arguments"))),
  forceReleaseResult: (key: string, released: boolean): unknown =>
    parse(() => addon.forrstForceReleaseResult(key, released)),
  statusResult: (key: string, found: ForrstFound | null): unknown =>
    parse(() => addon.forrstStatusResult(key, found)),
  forbidden: (key: string): Refusal => refusalOf(() => addon.forrstForbidden(key)),
  invalidRequest: (field: string, what: string): Refusal =>
    refusalOf(() => addon.forrstInvalidRequest(field, what)),
};

/** The JSON text of a part of a request; `null` for what JSON cannot express, such as a function. */
function toJson(value: unknown, field: string): string {
  try {
    return JSON.stringify(value ?? null) ?? "null";
  } catch {
    throw rules.invalidRequest(field, "must be JSON");
  }
}

function parse(run: () => string): unknown {
  return JSON.parse(call(run)) as unknown;
}

/** Calls the addon and turns its errors into a {@link Refusal} or a LockError. */
function call<T>(run: () => T): T {
  try {
    return run();
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    if (code !== "ForrstError") throw new LockError("Internal", message);
    const refused = JSON.parse(message) as {
      error: ForrstError;
      retryable: boolean;
      data?: unknown;
    };
    // Not enumerable, so that servers can read it but it is not in their JSON.
    Object.defineProperty(refused.error, "retryable", { value: refused.retryable });
    throw new Refusal(refused.error, refused.data);
  }
}

/** The refusal that a function throws. */
function refusalOf(run: () => never): Refusal {
  try {
    return call(run);
  } catch (error) {
    if (error instanceof Refusal) return error;
    throw error;
  }
}
