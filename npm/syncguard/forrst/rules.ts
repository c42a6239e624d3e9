/** The extension's rules: the core knows them, this calls it and parses its JSON. */

import { LockError } from "../native/errors.js";
import { addon, type ForrstOptions } from "./addon.js";
import type { ForrstError, ForrstRequest, ForrstResponse } from "./types.js";

const constants = addon.forrstConstants();
const retryable: ReadonlySet<string> = new Set(constants.retryable);

/** The extension's name, and those of its functions. */
export const URNS = constants as {
  readonly urn: "urn:forrst:ext:atomicLock";
  readonly release: "urn:cline:forrst:ext:atomic-lock:fn:release";
  readonly forceRelease: "urn:cline:forrst:ext:atomic-lock:fn:force-release";
  readonly status: "urn:cline:forrst:ext:atomic-lock:fn:status";
};

/** A request that is answered with an error. Never leaves this package. */
export class Refusal extends Error {
  constructor(
    readonly error: ForrstError,
    /** The extension's data beside the error. */
    readonly data?: unknown,
  ) {
    super(error.message);
  }

  /** The response that says why `request` is not served. */
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
  readonly autoRelease: boolean;
  readonly waiting: ForrstOptions["waiting"];
  /** The extension's data in the response. */
  acquired(expiresAtMs: number, lost: boolean): unknown;
  /** What to answer when the lock stayed held. */
  contention(): Refusal;
}

/** Reads the options of a request that calls `functionName`. Throws a {@link Refusal}. */
export function readOptions(functionName: string, options: unknown): RequestedLock {
  const json = toJson(options, "options");
  const answers = call(() => new addon.ForrstOptions(functionName, json));
  const { fullKey, ttlMs, owner, autoRelease, waiting } = answers;
  return {
    fullKey,
    ttlMs,
    owner,
    autoRelease,
    waiting,
    acquired: (expiresAtMs, lost) => parse(() => answers.acquired(expiresAtMs, lost)),
    contention: () =>
      new Refusal(
        refusalOf(() => answers.contention()).error,
        parse(() => answers.refusedData()) ?? undefined,
      ),
  };
}

export const rules = {
  keyArgument: (args: unknown): string =>
    call(() => addon.forrstKeyArgument(toJson(args, "arguments"))),
  releaseArguments: (args: unknown): { key: string; owner: string } =>
    call(() => addon.forrstReleaseArguments(toJson(args, "arguments"))),
  owns: (stored: string | undefined, claimed: string): boolean => addon.forrstOwns(stored, claimed),
  releaseResult: (key: string, absent: string | undefined): unknown =>
    parse(() => addon.forrstReleaseResult(key, absent)),
  forceReleaseResult: (key: string, released: boolean): unknown =>
    parse(() => addon.forrstForceReleaseResult(key, released)),
  statusFree: (key: string): unknown => parse(() => addon.forrstStatusFree(key)),
  statusHeld: (
    key: string,
    owner: string | undefined,
    acquiredAtMs: number,
    expiresAtMs: number,
    readAtMs: number,
  ): unknown =>
    parse(() => addon.forrstStatusHeld(key, owner, acquiredAtMs, expiresAtMs, readAtMs)),
  mismatch: (key: string): Refusal => refusalOf(() => addon.forrstMismatch(key)),
  notFound: (key: string): Refusal => refusalOf(() => addon.forrstNotFound(key)),
  forbidden: (key: string): Refusal => refusalOf(() => addon.forrstForbidden(key)),
  invalidRequest: (field: string, what: string): Refusal =>
    refusalOf(() => addon.forrstInvalidRequest(field, what)),
};

/** The JSON text of what a request holds; `null` for what JSON has no words for, such as functions. */
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

/** Calls the addon; what it throws becomes a {@link Refusal} or a LockError. */
function call<T>(run: () => T): T {
  try {
    return run();
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    if (code === "ForrstError")
      throw new Refusal(markRetryable(JSON.parse(message) as ForrstError));
    throw new LockError("Internal", message);
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

function markRetryable(error: ForrstError): ForrstError {
  return Object.defineProperty(error, "retryable", { value: retryable.has(error.code) });
}
