/** Requests, and what tests read in responses. */

import { type ForrstRequest, type ForrstResponse } from "syncguard/forrst";

export const protocol = { name: "forrst", version: "0.1.0" };
export const URN = "urn:forrst:ext:atomicLock";
export const RELEASE = "urn:cline:forrst:ext:atomic-lock:fn:release";
export const FORCE_RELEASE = "urn:cline:forrst:ext:atomic-lock:fn:force-release";
export const STATUS = "urn:cline:forrst:ext:atomic-lock:fn:status";
export const ttl = { value: 30, unit: "second" };

/** A call of `payments.charge` that uses the extension. */
export function charge(options: unknown, name = "payments.charge"): ForrstRequest {
  return {
    protocol,
    id: "req_1",
    call: { function: name, version: "1.0.0", arguments: { amount: 100 } },
    extensions: [{ urn: URN, options }],
  };
}

/** The key under which a call of `payments.charge` locks `key`. */
export const fullKey = (key: string): string => `lock:payments.charge:${key}`;

/** A call of a system function. */
export function system(name: string, args: unknown): ForrstRequest {
  return { protocol, id: "req_2", call: { function: name, version: "1.0.0", arguments: args } };
}

/** A server's handling that succeeds. */
export function succeed(request: ForrstRequest): ForrstResponse {
  return { protocol: request.protocol, id: request.id, result: { status: "succeeded" } };
}

/** A server's handling that must not be reached. */
export function unreachable(): ForrstResponse {
  throw new Error("next was called");
}

export function codes(response: ForrstResponse): string[] {
  return (response.errors ?? []).map(({ code }) => code);
}

/** The extension's data in a response. */
export function dataOf(response: ForrstResponse): Record<string, unknown> {
  const own = (response.extensions ?? []).filter(({ urn }) => urn === URN);
  if (own.length !== 1) throw new Error(`expected the extension once, got ${own.length}`);
  return own[0]?.data as Record<string, unknown>;
}

export function ownerOf(response: ForrstResponse): string {
  return dataOf(response).owner as string;
}
