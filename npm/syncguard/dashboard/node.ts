/** Requests of node:http, and of what is built on it, as those of the Fetch API. */

import type { IncomingMessage, ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { isFromLoopback } from "./access.js";
import type { Dashboard } from "./dashboard.js";
import { EVENTS } from "./streams.js";

type Answer = (request: Request, isLocal: boolean) => Promise<Response>;

export function answerNode(answer: Answer): Dashboard["node"] {
  return (incoming, response, next) => {
    // What authorize() has thrown is for whoever runs the server, and not for the page.
    const fail = (error: unknown): void => {
      console.error("[SyncGuard] The dashboard has failed:", error);
      if (!response.headersSent) response.writeHead(500);
      response.end();
    };
    void relay(answer, incoming, response).catch(next ?? fail);
  };
}

async function relay(
  answer: Answer,
  incoming: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const request = requestOf(incoming);
  if (request === undefined) {
    response.writeHead(400).end();
    return;
  }
  const isLocal = isFromLoopback(incoming.socket.remoteAddress, request.headers);
  const { status, headers, body } = await answer(request, isLocal);
  // The connection of a stream ends with it: a server that closes would wait for a page that asks anew on it.
  if (headers.get("content-type")?.startsWith(EVENTS) === true) response.shouldKeepAlive = false;
  response.writeHead(status, Object.fromEntries(headers));
  // A page that was closed in the middle is no error.
  await pipeline(body === null ? [] : Readable.fromWeb(body), response).catch(() => undefined);
}

/** `undefined` for what is no request, such as one for `//`. Its body is left alone: the page sends none. */
function requestOf(incoming: IncomingMessage): Request | undefined {
  // Express takes the path at which we are mounted away from `url`.
  const { originalUrl = incoming.url } = incoming as { originalUrl?: string };
  const { method = "GET", headers } = incoming;
  // HTTP/2 has the method and the path among its headers.
  const own = Object.entries(headers).filter(([name]) => !name.startsWith(":"));
  try {
    const url = new URL(`http://${headers.host ?? "localhost"}${originalUrl ?? "/"}`);
    return new Request(url, { method, headers: own.map(([name, value]) => [name, String(value)]) });
  } catch {
    return undefined;
  }
}
