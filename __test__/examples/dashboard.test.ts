/** The dashboard in the frameworks that people have: the page, a lock in it, and a change by whoever may. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { createSqliteBackend } from "syncguard/sqlite";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { root } from "../package/installed.js";
import { temporaryFolder } from "../support/temp.js";
import { PATIENCE_MS } from "./example.js";

const examples = join(root, "examples", "dashboard");
const ADA = { "x-user": "ada", "sec-fetch-site": "same-origin" };

type Ask = (query: string, init: RequestInit) => Promise<Response>;

/** Starts an example, and gives the address that it prints. */
async function startServer(file: string, path: string): Promise<Ask> {
  const child = spawn(process.execPath, [join(examples, file)], {
    env: { ...process.env, PORT: "0", SYNCGUARD_URL: `sqlite://${path}` },
    stdio: ["ignore", "pipe", "inherit"],
  });
  onTestFinished(async () => {
    child.kill("SIGTERM");
    // It ends by itself: the streams of open pages do not keep it.
    if (child.exitCode === null) await once(child, "exit");
  });
  for await (const line of createInterface(child.stdout)) {
    const [, url] = /^listening on (\S+)$/.exec(line) ?? [];
    if (url !== undefined) return async (query, init) => await fetch(url + query, init);
  }
  throw new Error(`${file} has printed no address`);
}

/** The route of Next.js, which calls it with requests. */
async function loadRoute(path: string): Promise<Ask> {
  vi.stubEnv("SYNCGUARD_URL", `sqlite://${path}`);
  const url = pathToFileURL(join(examples, "route.mjs")).href;
  const route = (await import(/* @vite-ignore */ url)) as Record<
    "GET" | "POST",
    (request: Request) => Promise<Response>
  >;
  return async (query, init) => {
    const request = new Request(`https://service.example/locks${query}`, init);
    return await route[init.method === "POST" ? "POST" : "GET"](request);
  };
}

describe.each(["node.mjs", "express.mjs", "fastify.mjs", "hono.mjs", "nest.mjs", "route.mjs"])(
  "%s",
  (file) => {
    it("shows a lock, and releases it for who may", { timeout: PATIENCE_MS }, async () => {
      const folder = temporaryFolder();
      onTestFinished(() => folder.remove());
      const path = join(folder.path, "locks.db");
      const backend = createSqliteBackend(path, { onLost: () => undefined });
      onTestFinished(() => backend.close());
      const ask = await (file === "route.mjs" ? loadRoute(path) : startServer(file, path));
      await backend.lock("k", { ttlMs: 60_000, owner: "me" });
      expect((await ask("", {})).status).toBe(403);
      const page = await ask("", { headers: ADA });
      expect([page.status, page.headers.get("content-type")]).toEqual([200, "text/html; charset=utf-8"]); // prettier-ignore
      expect((await ask("?page.js", { headers: ADA })).headers.get("content-type")).toContain("text/javascript"); // prettier-ignore
      const { rows } = (await (await ask("?locks", { headers: ADA })).json()) as {
        rows: { key: string; lockIdHash: string }[];
      };
      expect(rows).toEqual([expect.objectContaining({ key: "k", owner: "me" })]);
      const aborting = new AbortController();
      const events = await ask("?events", { headers: ADA, signal: aborting.signal });
      let told = "";
      for await (const part of events.body as unknown as AsyncIterable<Uint8Array>) {
        told += Buffer.from(part).toString();
        if (told.includes('"type":"all"')) break;
      }
      expect(told).toContain('"key":"k"');
      const headers = {
        ...ADA,
        "syncguard-do": "force-release",
        "syncguard-lock": rows[0]?.lockIdHash ?? "",
      };
      expect((await ask("", { method: "POST", headers })).status).toBe(403);
      const onCall = { ...headers, "x-role": "on-call" };
      expect((await ask("", { method: "POST", headers: onCall })).status).toBe(200);
      expect(await backend.isLocked({ key: "k" })).toBe(false);
    });
  },
);
