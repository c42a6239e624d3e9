// A small HTTP server that speaks Forrst, with the atomic-lock extension.
//
//   SYNCGUARD_URL   where the locks are: sqlite:, redis: or postgres:; default: in memory
//   PORT            default 8080; 0 for any free one
//   ADMIN_TOKEN     who sends it as a bearer token may force a release

import { createHash, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";
import { createPostgresBackend, setupSchema } from "syncguard/postgres";
import { createRedisBackend } from "syncguard/redis";
import { createSqliteBackend } from "syncguard/sqlite";
import { createAtomicLock } from "syncguard/forrst";
import { functions } from "./functions.mjs";

const MAX_BODY_BYTES = 1_000_000;

const url = process.env.SYNCGUARD_URL ?? ":memory:";
const backend = /^postgres/.test(url)
  ? createPostgresBackend(url)
  : /^redis/.test(url)
    ? createRedisBackend(url)
    : createSqliteBackend(url);

if (/^postgres/.test(url)) await setupSchema(url);

// Requests whose HTTP headers carried the token.
const admins = new WeakSet();
const atomicLock = createAtomicLock(backend, { authorize: (request) => admins.has(request) });

/** The server's own handling, with or without a lock. */
async function call(request, lock) {
  const { protocol, id } = request;
  const run = functions[request.call?.function];
  if (run === undefined) {
    const error = { code: "FUNCTION_NOT_FOUND", message: "There is no such function" };
    return { protocol, id, result: null, errors: [error] };
  }
  return { protocol, id, result: await run(request.call.arguments ?? {}, lock) };
}

const server = createServer(async (httpRequest, httpResponse) => {
  // Nobody waits for a lock on behalf of a client that is gone.
  const gone = new AbortController();
  httpResponse.on("close", () => gone.abort());
  let request;
  try {
    request = JSON.parse(await readBody(httpRequest));
  } catch {
    return answer(httpResponse, 400, refuse(null, "PARSE_ERROR", "The request is not JSON"));
  }
  if (typeof request !== "object" || request === null || Array.isArray(request)) {
    return answer(httpResponse, 400, refuse(null, "INVALID_REQUEST", "The request is no object"));
  }
  try {
    if (mayAdminister(httpRequest)) admins.add(request);
    answer(httpResponse, 200, await atomicLock.handle(request, call, { signal: gone.signal }));
  } catch (error) {
    if (gone.signal.aborted) return;
    // Not for clients: what happened to the store, or a defect.
    console.error(error);
    answer(httpResponse, 500, refuse(request, "INTERNAL_ERROR", "The server failed"));
  }
});

server.listen(Number(process.env.PORT ?? 8080), "127.0.0.1", () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});
process.once("SIGTERM", () => server.close());

async function readBody(httpRequest) {
  let text = "";
  for await (const chunk of httpRequest.setEncoding("utf8")) {
    text += chunk;
    if (text.length > MAX_BODY_BYTES) throw new Error("too large");
  }
  return text;
}

function answer(httpResponse, status, response) {
  httpResponse.writeHead(status, { "content-type": "application/json" });
  httpResponse.end(`${JSON.stringify(response, null, 2)}\n`);
}

function refuse(request, code, message) {
  const { protocol = { name: "forrst", version: "0.1.0" }, id = null } = request ?? {};
  return { protocol, id, result: null, errors: [{ code, message }] };
}

function mayAdminister({ headers }) {
  const token = process.env.ADMIN_TOKEN;
  if (!token) return false;
  const digest = (text) => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(headers.authorization ?? ""), digest(`Bearer ${token}`));
}
