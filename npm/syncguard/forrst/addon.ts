/** What the addon has for Forrst. */

import { exported } from "../native/addon.js";

/** The Forrst extension's options in one request. Answers are JSON. */
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
  refusedData(): string;
}

/** Answers are JSON. */
export const addon = exported as {
  forrstConstants(): {
    urn: string;
    release: string;
    forceRelease: string;
    status: string;
    retryable: string[];
    codes: string[];
  };
  ForrstOptions: new (functionName: string, json: string) => ForrstOptions;
  forrstKeyArgument(json: string): string;
  forrstReleaseArguments(json: string): { key: string; owner: string };
  forrstOwns(stored: string | undefined, claimed: string): boolean;
  forrstReleaseResult(key: string, absent: string | undefined): string;
  forrstForceReleaseResult(key: string, released: boolean): string;
  forrstStatusFree(key: string): string;
  forrstStatusHeld(
    key: string,
    owner: string | undefined,
    acquiredAtMs: number,
    expiresAtMs: number,
    readAtMs: number,
  ): string;
  forrstMismatch(key: string): never;
  forrstNotFound(key: string): never;
  forrstForbidden(key: string): never;
  forrstInvalidRequest(field: string, what: string): never;
};
