/** The parts of the Forrst protocol's requests and responses that the atomic-lock extension uses. */

import type {
  BackendCapabilities,
  FencingCapabilities,
  LockHandleMembers,
  OnReleaseError,
} from "../values/types.js";

/** An extension in a request (`options`) or in a response (`data`). */
export interface ForrstExtension {
  /** Which extension. */
  readonly urn: string;
  /** What the caller asks of the extension; in requests. */
  readonly options?: unknown;
  /** What the extension answers; in responses. */
  readonly data?: unknown;
}

/** A request. It may have more members. */
export interface ForrstRequest {
  /** Name and version of the protocol: `{ name: "forrst", version: "0.1.0" }`. Copied into the response. */
  readonly protocol?: unknown;
  /** The caller's name for the request. Copied into the response. */
  readonly id?: unknown;
  /** Which function, and with what. */
  readonly call: {
    /** The name of the function; a lock without the scope `"global"` is one of this function. */
    readonly function: string;
    /** The version of the function. */
    readonly version?: unknown;
    /** What the function is called with. */
    readonly arguments?: unknown;
  };
  /** The extensions that the request uses. */
  readonly extensions?: readonly ForrstExtension[] | undefined;
}

/** An error in a response. */
export interface ForrstError {
  /** What went wrong, for programs, such as `LOCK_TIMEOUT`. */
  readonly code: string;
  /** What went wrong, for people. */
  readonly message: string;
  /** What the error is about, such as the field that is wrong. */
  readonly details?: unknown;
  /**
   * Whether the same request may succeed later. On errors of this package it is not enumerable: servers can read it, but
   * it is not in the JSON, as the extension's errors have no such member.
   */
  readonly retryable?: boolean;
}

/** A response. It may have more members. */
export interface ForrstResponse {
  /** Name and version of the protocol, as in the request. */
  readonly protocol?: unknown;
  /** The caller's name for the request, as in the request. */
  readonly id?: unknown;
  /** What the function returned; `null` if it failed. */
  readonly result?: unknown;
  /** What went wrong. */
  readonly errors?: readonly ForrstError[] | undefined;
  /** The data of extensions. */
  readonly extensions?: readonly ForrstExtension[] | undefined;
}

/** The lock that a function runs under. */
export type AtomicLockHandle<C extends BackendCapabilities = FencingCapabilities> =
  LockHandleMembers<C> & {
    /** The signal that the call was given. */
    readonly signal: AbortSignal | undefined;
    /** Who may release it from another process. */
    readonly owner: string;
  };

/** Options of one call of `handle` or of a system function. */
export interface AtomicLockCallOptions {
  /**
   * Ends the waiting for the lock. It is also in the handle that the function gets, which should stop when it is aborted.
   * The lock is released either way.
   */
  readonly signal?: AbortSignal | undefined;
}

/** Options of {@link createAtomicLock}. */
export interface AtomicLockOptions {
  /**
   * Whether a request may force a release. Only `true` allows it; without this option, no request may.
   *
   * If it throws, the call is rejected with that, and the lock stays.
   */
  readonly authorize?: ((request: ForrstRequest) => boolean | Promise<boolean>) | undefined;
  /** Called when an automatic release fails; the response stays the same. Default: as for `lock()`. */
  readonly onReleaseError?: OnReleaseError | undefined;
}

/**
 * A system function of the extension. Bad arguments and refusals become responses with `errors`.
 *
 * @throws LockError the store's error; `Aborted` if `options.signal` came first
 */
export type AtomicLockFunction = (
  request: ForrstRequest,
  options?: AtomicLockCallOptions,
) => Promise<ForrstResponse>;

/** The names of the system functions. */
export type AtomicLockFunctionName =
  | "urn:cline:forrst:ext:atomic-lock:fn:release"
  | "urn:cline:forrst:ext:atomic-lock:fn:force-release"
  | "urn:cline:forrst:ext:atomic-lock:fn:status";

/** The atomic-lock extension of a server. */
export interface AtomicLock<C extends BackendCapabilities = FencingCapabilities> {
  /** The extension's name on the wire. */
  readonly urn: "urn:forrst:ext:atomicLock";
  /** The system functions by their names, for servers with their own routing. */
  readonly functions: Readonly<Record<AtomicLockFunctionName, AtomicLockFunction>>;
  /**
   * Serves a request: takes the lock that it asks for, calls `next`, adds the extension's data to the response, and
   * releases the lock. A request that does not use the extension is handed to `next` as it is, and its response is
   * returned as it is.
   * A call of a system function is answered without `next`.
   *
   * If `next` throws, the lock is released and the caller gets the same error. Bad options, contention and the errors of
   * the system functions become responses with `errors`.
   *
   * @param request - the request; it is not changed
   * @param next - the server's own handling; gets the same request, and the lock if the request asked for one
   * @throws LockError the store's error; `Aborted` if `options.signal` ended the waiting; `InvalidArgument` for what is no
   *   request or no response
   * @example
   * ```ts
   * import { createAtomicLock } from "syncguard/forrst";
   *
   * const request = {
   *   id: "1",
   *   call: { function: "reports.write", arguments: {} },
   *   extensions: [
   *     {
   *       urn: "urn:forrst:ext:atomicLock",
   *       options: { key: "nightly", ttl: { value: 30, unit: "second" } },
   *     },
   *   ],
   * };
   * const response = await createAtomicLock(backend).handle(request, ({ id }, lock) => {
   *   return { id, result: `written under fence ${lock?.fence}` };
   * });
   * ```
   */
  handle<Request extends ForrstRequest>(
    request: Request,
    next: (
      request: Request,
      lock: AtomicLockHandle<C> | undefined,
    ) => ForrstResponse | Promise<ForrstResponse>,
    options?: AtomicLockCallOptions,
  ): Promise<ForrstResponse>;
}
