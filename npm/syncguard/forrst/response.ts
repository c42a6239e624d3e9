/** Responses to Forrst requests. */

import { Refusal, URNS } from "./rules.js";
import type { ForrstRequest, ForrstResponse } from "./types.js";

/** The response to `request` with what `answer` gives, or with the error it refuses the request with. */
export async function respond(
  request: ForrstRequest,
  answer: () => Promise<Pick<ForrstResponse, "result" | "errors" | "extensions">>,
): Promise<ForrstResponse> {
  const { protocol, id } = request;
  try {
    return { protocol, id, ...(await answer()) };
  } catch (refusal) {
    if (refusal instanceof Refusal) return refuse(request, refusal);
    throw refusal;
  }
}

/** The response that says why `request` is not served. */
export function refuse(request: ForrstRequest, { error, data }: Refusal): ForrstResponse {
  const { protocol, id } = request;
  const response = { protocol, id, result: null, errors: [error] };
  return data === undefined ? response : { ...response, extensions: [{ urn: URNS.urn, data }] };
}

/** The response with the extension's data; what other extensions said stays. */
export function withData(response: ForrstResponse, data: unknown): ForrstResponse {
  const others = (response.extensions ?? []).filter(({ urn }) => urn !== URNS.urn);
  return { ...response, extensions: [...others, { urn: URNS.urn, data }] };
}
