/** Who may see the page, and who may change anything by it. */

import type { DashboardOptions } from "./dashboard.js";

/**
 * Why a request is refused; otherwise who has sent it.
 *
 * @param isLocal - whether it is known to come from this machine, and not by way of a proxy
 */
export async function accessOf(
  request: Request,
  action: "read" | "change",
  { authorize, allowChanges }: DashboardOptions,
  isLocal: boolean,
): Promise<{ refusal: string } | { who: string }> {
  const isChange = action === "change";
  if (isChange && allowChanges !== true) return { refusal: "changes need the option allowChanges" };
  if (isChange && !isSameOrigin(request.headers)) {
    return { refusal: "the request comes from another page" };
  }
  if (authorize === undefined) {
    if (!isChange && isLocal) return { who: "" };
    return { refusal: "without authorize() the page is shown on loopback alone, to no proxy" };
  }
  const who: unknown = await authorize(request, action);
  // A name alone counts: `true`, or an object, says nothing of who it is.
  if (typeof who === "string" && who !== "") return { who };
  return { refusal: "authorize() has refused the request" };
}

/**
 * Whether the page itself sends the request, and no other site that the same browser shows. Browsers say it in a header that no script
 * can set. Those without it, and pages without TLS, name at least the origin.
 */
export function isSameOrigin(headers: Headers): boolean {
  const site = headers.get("sec-fetch-site");
  if (site !== null) return site === "same-origin";
  const origin = headers.get("origin") ?? "";
  return URL.canParse(origin) && new URL(origin).host === headers.get("host")?.toLowerCase();
}

const LOOPBACK = /^(?:127\.\d+\.\d+\.\d+|::1|::ffff:127\.\d+\.\d+\.\d+)$/;
const PROXIED = ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"];

/**
 * Whether a request comes from this machine, for a name of this machine. Another name that leads here is one that a site has made up,
 * so as to read what the browser shows.
 */
export function isFromLoopback(address: string | undefined, headers: Headers): boolean {
  if (address === undefined || !LOOPBACK.test(address)) return false;
  if (PROXIED.some((name) => headers.has(name))) return false;
  const name = (headers.get("host") ?? "").replace(/:\d+$/, "").toLowerCase();
  return name === "localhost" || LOOPBACK.test(name.replace(/^\[(.*)\]$/, "$1"));
}
