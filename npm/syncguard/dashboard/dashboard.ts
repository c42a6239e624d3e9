/**
 * A page that shows the locks of a store, and what becomes of them.
 *
 * This room knows who may see and change what by a page, and how often a store is looked at for it.
 * It must not know how locks are listed: inspection/ has that, for the command line, too.
 */

import type { IncomingMessage, ServerResponse } from "node:http";
import { troubleOf } from "../inspection/trouble.js";
import { optionNames, refuseUnknown } from "../options/names.js";
import {
  checkBooleans,
  checkFunction,
  invalid,
  LONGEST_TIMER_MS,
  withoutNulls,
} from "../options/validation.js";
import type { SyncGuardBackend } from "../values/types.js";
import { accessOf } from "./access.js";
import { CSS, HTML, JS } from "./assets.js";
import { type Done, forceRelease, mark } from "./changes.js";
import { Feed } from "./feed.js";
import { answerNode } from "./node.js";
import { Looked } from "./store.js";
import { EVENTS, streamOf } from "./streams.js";

/** Options of `createDashboard()`. */
export interface DashboardOptions {
  /**
   * Says who may see the locks, and who may change them: the name of whoever sends the request, or `false` to refuse it. Names are
   * told in telemetry. Without it the page is shown on loopback alone, and changes nothing.
   */
  authorize?:
    | ((request: Request, action: "read" | "change") => string | false | Promise<string | false>)
    | undefined;
  /** Whether the page can force-release locks and mark periods. It needs `authorize`. Default false. */
  allowChanges?: boolean | undefined;
  /** From one look at the store to the next, while somebody watches, in milliseconds. Default 500; on Firestore 10,000. */
  intervalMs?: number | undefined;
}

/** What `createDashboard()` gives: a handler of the Fetch API, for Hono, Next.js, Bun and Deno. */
export interface Dashboard {
  /** Answers a request. It needs `authorize`, because a `Request` does not say where it comes from. */
  (request: Request): Promise<Response>;
  /** The same for `node:http`, Express, Fastify and NestJS. */
  readonly node: (
    request: IncomingMessage,
    response: ServerResponse,
    next?: (error: unknown) => void,
  ) => void;
  /** Ends the streams of all pages that are open, so that a server can close. Does not close the backend. */
  readonly close: () => void;
}

const NAMES = ["authorize", "allowChanges", "intervalMs"] satisfies (keyof DashboardOptions)[];
const OPTIONS = optionNames("createDashboard()", NAMES);

const INTERVAL_MS = 500;
/** Firestore bills a read for each lock that a look finds. */
const FIRESTORE_INTERVAL_MS = 10_000;
const SHORTEST_INTERVAL_MS = 50;

/** Nothing of another origin, nothing inline, in nobody's frame, and no text that becomes markup. */
const HEADERS = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
  allow: "GET, POST",
  "cache-control": "no-store, no-transform",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-accel-buffering": "no",
  "x-content-type-options": "nosniff",
};

/**
 * A page that shows the locks of a backend's store, live: docs/dashboard.md. It changes nothing unless `allowChanges` is set.
 *
 * @throws LockError `InvalidArgument` that names the option, or for a backend whose locks cannot be listed
 * @example
 * ```ts
 * import { createServer } from "node:http";
 * import { createDashboard } from "syncguard/dashboard";
 * import { createRedisBackend } from "syncguard/redis";
 *
 * const dashboard = createDashboard(createRedisBackend("redis://localhost:6379"));
 * createServer(dashboard.node).listen(7788, "127.0.0.1");
 * ```
 */
export function createDashboard(
  backend: SyncGuardBackend,
  options: DashboardOptions = {},
): Dashboard {
  const store = new Looked(backend);
  const checked = readOptions(options);
  const usualMs = store.name === "Firestore" ? FIRESTORE_INTERVAL_MS : INTERVAL_MS;
  const feed = new Feed(store, checked.intervalMs ?? usualMs, checked.allowChanges === true);
  // The page is one address, wherever it is mounted: what belongs to it has a name behind the question mark.
  const reads = new Map<string, (text: Text) => Response | Promise<Response>>([
    ["?page.css", () => response(200, "text/css", CSS)],
    ["?page.js", () => response(200, "text/javascript", JS)],
    ["?events", () => response(200, EVENTS, streamOf(feed))],
    ["?locks", async (text) => json(200, await store.page(text("after"), text("search")))],
  ]);
  const changes = new Map<string, (text: Text, by: string) => Promise<Done>>([
    ["force-release", (text, by) => forceRelease(store, text("lock"), by)],
    ["mark", (text, by) => mark(store, text("key"), text("due"), by)],
    ["clear", (text, by) => mark(store, text("key"), undefined, by)],
  ]);
  const answer = async (request: Request, isLocal: boolean): Promise<Response> => {
    const { method, headers, url } = request;
    if (method !== "GET" && method !== "POST") return json(405, { message: "GET or POST" });
    const action = method === "GET" ? "read" : "change";
    const access = await accessOf(request, action, checked, isLocal);
    if ("refusal" in access) return json(403, { message: access.refusal });
    const text = (name: string): string => textOf(headers, name);
    try {
      if (action === "read") return await (reads.get(new URL(url).search) ?? showPage)(text);
      const change = changes.get(text("do"));
      if (change === undefined) throw invalid("syncguard-do must be force-release, mark or clear");
      const done = await change(text, access.who);
      feed.lookIn(0);
      return json(done.ok ? 200 : 409, done);
    } catch (error) {
      const trouble = troubleOf(error);
      return json(trouble.code === "InvalidArgument" ? 400 : 503, trouble);
    }
  };
  return Object.assign((request: Request) => answer(request, false), {
    node: answerNode(answer),
    close: () => feed.close(),
  });
}

function readOptions(given: DashboardOptions): DashboardOptions {
  const options = withoutNulls(given);
  refuseUnknown(options, OPTIONS);
  const { authorize, allowChanges, intervalMs = INTERVAL_MS } = options;
  if (authorize !== undefined) checkFunction(authorize, "authorize");
  checkBooleans({ allowChanges });
  if (allowChanges === true && authorize === undefined) {
    throw invalid("allowChanges needs authorize, which says who may change anything");
  }
  const isTime = Number.isInteger(intervalMs) && intervalMs <= LONGEST_TIMER_MS;
  if (!isTime || intervalMs < SHORTEST_INTERVAL_MS) {
    throw invalid(`intervalMs must be a whole number from ${SHORTEST_INTERVAL_MS} on`);
  }
  return options;
}

/** What a header of the page has; "" without it. */
type Text = (name: string) => string;

const showPage = (): Response => response(200, "text/html", HTML);

/**
 * Keys and search texts may be secret: headers are in no log, as URLs are. Bodies are read before us in some frameworks. A header has
 * no text but that of ASCII.
 */
function textOf(headers: Headers, name: string): string {
  try {
    return decodeURIComponent(headers.get(`syncguard-${name}`) ?? "");
  } catch {
    throw invalid(`syncguard-${name} must be encoded as part of a URL`);
  }
}

const json = (status: number, value: unknown): Response =>
  response(status, "application/json", JSON.stringify(value));

function response(status: number, type: string, body: string | ReadableStream): Response {
  const headers = { ...HEADERS, "content-type": `${type}; charset=utf-8` };
  return new Response(body, { status, headers });
}
