/** What the addon has for Forrst. Answers are JSON. */

import { exported, type Handle } from "../native/addon.js";

/** The Forrst extension's options in one request. */
export interface ForrstOptions {
  readonly fullKey: string;
  readonly ttlMs: number;
  readonly owner: string;
  readonly autoRelease: boolean;
  readonly waiting: {
    maxRetries: number;
    retryDelayMs: number;
    backoff: "exponential" | "fixed";
    jitter: "equal" | "full" | "none";
    timeoutMs: number;
  };
  acquired(expiresAtMs: number, lost: boolean): string;
  contention(): never;
}

/** What the functions look at in a lock that somebody holds. */
export interface ForrstFound {
  readonly owner: string | undefined;
  readonly acquiredAtMs: number;
  readonly expiresAtMs: number;
  readonly readAtMs: number;
}

/** A call of the release function: `start` and `answer` for all of it, `checkOwner` and `released` for each step. */
export interface ForrstRelease {
  readonly key: string;
  start(handle: Handle, operation: number, cancellable: boolean): boolean;
  answer(): string;
  checkOwner(found: ForrstFound | null): void;
  released(absent: string | undefined): string;
}

export const addon = exported as {
  forrstUrns(): { urn: string; release: string; forceRelease: string; status: string };
  ForrstOptions: new (functionName: string, json: string) => ForrstOptions;
  ForrstRelease: new (json: string) => ForrstRelease;
  forrstKeyArgument(json: string): string;
  forrstForceReleaseResult(key: string, released: boolean): string;
  forrstStatusResult(key: string, found: ForrstFound | null): string;
  forrstForbidden(key: string): never;
  forrstInvalidRequest(field: string, what: string): never;
};
