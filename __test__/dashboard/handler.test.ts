/** What `syncguard/dashboard` answers, and to whom: without a browser. */

import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { Agent, request as send } from "node:http";
import { type LockEvent, withTelemetry } from "syncguard";
import { createDashboard, type DashboardOptions } from "syncguard/dashboard";
import { createTestBackend } from "syncguard/testing";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { until } from "../support/until";
import { serve } from "./serve";
import { authorize, backend, ends, found, type Found, get, HOME, OURS, post } from "./stage";

// A disk is slow on a machine that has much else to do.
vi.setConfig({ testTimeout: 120_000 });

/** Asks to release the lock on `key`, as the page does. */
async function release(options: DashboardOptions, headers: Record<string, string>, key = "k") {
  const dashboard = createDashboard(backend, options);
  const row = (await found(createDashboard(backend, { authorize }))).rows.find((lock) => lock.key === key); // prettier-ignore
  // What was shown by another dashboard is not known to this one.
  await found(dashboard);
  const lock = row?.lockIdHash ?? "";
  return await dashboard(post({ "syncguard-do": "force-release", "syncguard-lock": lock, ...headers })); // prettier-ignore
}

describe("what is refused", () => {
  it.each([
    ["a backend that is none", () => createDashboard({} as never), "backend must be"],
    ["one whose locks cannot be listed", () => createDashboard(createTestBackend()), "listed"],
    [
      "changes by anybody",
      () => createDashboard(backend, { allowChanges: true }),
      "allowChanges needs authorize",
    ],
    [
      "an option that is none",
      () => createDashboard(backend, { allowChange: true } as never),
      "did you mean allowChanges?",
    ],
    [
      "what is no function",
      () => createDashboard(backend, { authorize: true } as never),
      "authorize must be a function",
    ],
    ["a time", () => createDashboard(backend, { intervalMs: 1 }), "intervalMs must be"],
  ])("%s", (_what, create, message) => {
    expect(create).toThrow(message);
  });

  it("a Request without authorize: nobody knows where it comes from", async () => {
    for (const query of ["", "?locks", "?events", "?page.js"]) {
      expect((await createDashboard(backend)(get(query))).status).toBe(403);
    }
  });

  it.each([undefined, false, "", true, null, {}])("whoever authorize calls %j", async (who) => {
    const dashboard = createDashboard(backend, { authorize: () => who as never });
    expect((await dashboard(get("?locks"))).status).toBe(403);
  });

  it("other methods", async () => {
    const request = new Request(HOME, { method: "DELETE" });
    expect((await createDashboard(backend, { authorize })(request)).status).toBe(405);
  });

  it("what authorize throws is thrown, and nothing is answered", async () => {
    const fail = (): never => {
      throw new Error("no session");
    };
    await expect(createDashboard(backend, { authorize: fail })(get())).rejects.toThrow(
      "no session",
    );
  });
});

describe("a change", () => {
  beforeEach(async () => {
    await backend.lock("k", { ttlMs: 60_000, onLost: () => undefined });
  });

  it("is made for the page itself, by whoever may", async () => {
    const asked: string[] = [];
    const options: DashboardOptions = {
      allowChanges: true,
      authorize: (_request, action) => {
        asked.push(action);
        return "ada";
      },
    };
    expect((await release(options, OURS)).status).toBe(200);
    expect(asked).toEqual(["read", "change"]);
    expect(await backend.isLocked({ key: "k" })).toBe(false);
  });

  const mayRead: DashboardOptions["authorize"] = (_request, action) => action === "read" && "bob";
  const all: DashboardOptions = { allowChanges: true, authorize };
  it.each([
    ["without allowChanges", { authorize }, OURS],
    ["by whoever may only read", { allowChanges: true, authorize: mayRead }, OURS],
    ["from another site", all, { "sec-fetch-site": "cross-site" }],
    ["from a sister site", all, { "sec-fetch-site": "same-site" }],
    ["typed into the address bar", all, { "sec-fetch-site": "none" }],
    ["from another origin", all, { origin: "http://evil.example", host: "locks.example" }],
    ["from an origin that hides", all, { origin: "null", host: "locks.example" }],
    [
      "from another origin that says it is ours",
      all,
      { origin: "http://locks.example", host: "locks.example", "sec-fetch-site": "cross-site" },
    ],
    ["without an origin", all, {}],
  ])("is refused %s", async (_where, options, headers) => {
    const response = await release(options, headers);
    expect(response.status).toBe(403);
    expect(await backend.isLocked({ key: "k" })).toBe(true);
  });

  it("is made for an origin that is the host, where browsers say no more", async () => {
    const headers = { origin: "http://locks.example", host: "locks.example" };
    expect((await release({ allowChanges: true, authorize }, headers)).status).toBe(200);
  });

  it("leaves the lock alone that somebody else has got meanwhile", async () => {
    const dashboard = createDashboard(backend, { authorize, allowChanges: true });
    const [row] = (await found(dashboard)).rows;
    await backend.forceRelease("k");
    await backend.lock("k", { ttlMs: 60_000 });
    const lock = row?.lockIdHash ?? "";
    const headers = { "syncguard-do": "force-release", "syncguard-lock": lock, ...OURS };
    expect((await dashboard(post(headers))).status).toBe(409);
    expect(await backend.isLocked({ key: "k" })).toBe(true);
  });

  it.each([
    [{ "syncguard-do": "mark", "syncguard-key": "k" }, "due must not be empty"],
    [{ "syncguard-do": "mark", "syncguard-due": "1" }, "Key must not be empty"],
    [{ "syncguard-do": "mark", "syncguard-key": "%", "syncguard-due": "1" }, "encoded"],
    [{ "syncguard-do": "drop" }, "syncguard-do must be"],
    [{}, "syncguard-do must be"],
  ])("with wrong arguments says so: %j", async (headers, message) => {
    const dashboard = createDashboard(backend, { authorize, allowChanges: true });
    const response = await dashboard(post({ ...headers, ...OURS }));
    expect(response.status).toBe(400);
    expect(await response.text()).toContain(message);
  });

  it("does not store text where numbers are", async () => {
    await backend.once("job", { due: 41, ttlMs: 5_000 }, () => undefined);
    const dashboard = createDashboard(backend, { authorize, allowChanges: true });
    const headers = { "syncguard-do": "mark", "syncguard-key": "job", ...OURS };
    const response = await dashboard(post({ ...headers, "syncguard-due": "tonight" }));
    expect(response.status).toBe(400);
    expect((await found(dashboard, { "syncguard-search": "job" })).done).toMatchObject({
      due: "41",
    });
  });

  it("is told in telemetry, with who made it", async () => {
    const events: LockEvent[] = [];
    const observed = withTelemetry(backend, { onEvent: (event) => void events.push(event) });
    const told: unknown[] = [];
    const listen = (message: unknown): void => void told.push(message);
    subscribe("syncguard:mark", listen);
    ends.push(() => unsubscribe("syncguard:mark", listen));
    const dashboard = createDashboard(observed, { authorize, allowChanges: true });
    const [row] = (await found(dashboard)).rows;
    await dashboard(
      post({ "syncguard-do": "force-release", "syncguard-lock": row?.lockIdHash ?? "", ...OURS }),
    );
    const headers = { "syncguard-do": "mark", "syncguard-key": "job", "syncguard-due": "1" };
    await dashboard(post({ ...headers, ...OURS }));
    await until(() => events.length >= 2);
    expect(events).toEqual([
      expect.objectContaining({ type: "forceRelease", result: "ok", by: "ada" }),
      expect.objectContaining({ type: "mark", result: "ok", by: "ada" }),
    ]);
    expect(told).toEqual([expect.objectContaining({ type: "mark", by: "ada" })]);
  });
});

describe("what is answered", () => {
  it("has no lock id in it, and headers that keep everything else out", async () => {
    const dashboard = createDashboard(backend, { authorize });
    const held = await backend.lock("k", { ttlMs: 60_000 });
    const response = await dashboard(get("?locks"));
    const text = await response.text();
    expect(text).toContain('"key":"k"');
    expect(text).not.toContain(held.lockId);
    const page = await dashboard(get());
    for (const { headers } of [response, page]) {
      const policy = headers.get("content-security-policy") ?? "";
      expect(policy).toMatch(/^default-src 'none'; /);
      expect(policy).not.toContain("unsafe");
      expect(policy).toContain("frame-ancestors 'none'");
      expect(headers.get("cache-control")).toContain("no-store");
      expect(headers.get("access-control-allow-origin")).toBeNull();
    }
    expect(await page.text()).not.toMatch(/<script>|<style| style=| on\w+=/);
    await held.release();
  });

  it("is found by a part of the key or the owner, whatever the case, page by page", async () => {
    for (let number = 0; number < 1_100; number += 1) {
      await backend.acquire({ key: `Job:${number}`, ttlMs: 600_000, owner: number === 7 ? "Zoë" : "x" }); // prettier-ignore
    }
    const dashboard = createDashboard(backend, { authorize });
    const keys = new Set<string>();
    let after: string | null = null;
    let pages = 0;
    do {
      const headers: Record<string, string> = after === null ? {} : { "syncguard-after": encodeURIComponent(after) }; // prettier-ignore
      const page: Found = await found(dashboard, headers);
      for (const { key } of page.rows) keys.add(key);
      expect(page.rows.length).toBeLessThanOrEqual(1_000);
      after = page.next;
      pages += 1;
    } while (after !== null);
    expect([keys.size, pages]).toEqual([1_100, 2]);
    const search = async (text: string): Promise<string[]> => {
      const answer = await found(dashboard, { "syncguard-search": encodeURIComponent(text) });
      return answer.rows.map(({ key }) => key);
    };
    expect(await search("job:1099")).toEqual(["Job:1099"]);
    expect(await search("zoë")).toEqual(["Job:7"]);
    expect(await search("Job:500")).toEqual(["Job:500"]);
  });
});

describe("node:http", () => {
  /** What a server on this machine answers, with those headers. */
  async function status(headers: Record<string, string>, path = "/", method = "GET") {
    const { url, stop } = await serve(createDashboard(backend).node);
    ends.push(stop);
    return await new Promise<number | undefined>((resolve, reject) => {
      const { port } = new URL(url);
      const sent = send({ port, host: "127.0.0.1", path, method, headers }, (response) => {
        response.resume();
        resolve(response.statusCode);
      });
      sent.on("error", reject).end();
    });
  }

  it.each([{}, { host: "localhost:7788" }, { host: "127.0.0.1" }, { host: "[::1]:80" }])(
    "shows the page on loopback: %j",
    async (headers) => {
      expect(await status(headers)).toBe(200);
    },
  );

  it.each([
    { host: "rebound.example" },
    { host: "127.0.0.1.rebound.example" },
    { "x-forwarded-for": "203.0.113.7" },
    { forwarded: "for=203.0.113.7" },
    { via: "1.1 proxy" },
  ])("does not show it to a proxy, or under another name: %j", async (headers) => {
    expect(await status(headers)).toBe(403);
  });

  it("changes nothing without authorize", async () => {
    expect(await status(OURS, "/", "POST")).toBe(403);
  });

  it("keeps no connection that a stream was on, so that a server can close", async () => {
    const dashboard = createDashboard(backend);
    const { url, server } = await serve(dashboard.node);
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    ends.push(() => {
      agent.destroy();
    });
    const open = async (): Promise<void> => {
      await new Promise<void>((resolve, reject) => {
        const sent = send(`${url}?events`, { agent }, (response) => {
          response.resume().once("end", resolve);
          // Once the first bytes are there, the service ends.
          response.once("data", () => {
            dashboard.close();
            server.close();
          });
        });
        sent.on("error", reject).end();
      });
    };
    const closed = new Promise((resolve) => server.once("close", resolve));
    await open();
    // As a page that is open does it.
    await expect(open()).rejects.toThrow("ECONNREFUSED");
    await closed;
  });

  it("hands on what authorize throws", async () => {
    const fail = (): never => {
      throw new Error("no session");
    };
    const { node } = createDashboard(backend, { authorize: fail });
    const handed: unknown[] = [];
    const { url, stop } = await serve((request, response) => {
      node(request, response, (error) => {
        handed.push(error);
        response.writeHead(500).end();
      });
    });
    ends.push(stop);
    expect((await fetch(url)).status).toBe(500);
    expect(handed).toEqual([expect.objectContaining({ message: "no session" })]);
  });
});
