/** The page of `syncguard/dashboard` as people see it, in Chromium. */

import { once } from "node:events";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import axe from "axe-core";
import type { Browser, Page } from "playwright-core";
import type { HeldSlot, SyncGuardBackend } from "syncguard";
import { createDashboard, type Dashboard, type DashboardOptions } from "syncguard/dashboard";
import { createPostgresBackend, setupSchema } from "syncguard/postgres";
import { createRedisBackend } from "syncguard/redis";
import { createSqliteBackend } from "syncguard/sqlite";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { openBrowser } from "./browser";
import { serve } from "./serve";
import { startProgram } from "../support/child";
import { startPostgres } from "../support/postgres";
import { startRedis } from "../support/redis";
import { temporaryFolder } from "../support/temp";
import { until } from "../support/until";

const hold = fileURLToPath(new URL("fixtures/hold.mjs", import.meta.url));

type Opened = { url: string; open: () => SyncGuardBackend; stop: () => Promise<void> };

const stores: Readonly<Record<string, () => Promise<Opened>>> = {
  SQLite: async () => {
    const folder = temporaryFolder();
    const path = join(folder.path, "locks.db");
    const stop = async (): Promise<void> => folder.remove();
    return { url: `sqlite://${path}`, open: () => createSqliteBackend(path), stop };
  },
  Redis: async () => {
    const { url, stop } = await startRedis();
    return { url, open: () => createRedisBackend(url), stop };
  },
  PostgreSQL: async () => {
    const { url, stop } = await startPostgres();
    await setupSchema(url);
    return { url, open: () => createPostgresBackend(url), stop };
  },
};

// A browser is slow on a machine that has much else to do.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

let browser: Browser;
beforeAll(async () => {
  browser = await openBrowser();
});
afterAll(async () => {
  await browser.close();
});

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** A dashboard, and a browser that shows it. What the browser complains of fails the test. */
async function show(
  backend: SyncGuardBackend,
  options?: DashboardOptions,
): Promise<{ page: Page; dashboard: Dashboard; url: string; complaints: string[] }> {
  const dashboard = createDashboard(backend, options);
  const { url, stop } = await serve(dashboard.node);
  const context = await browser.newContext();
  context.setDefaultTimeout(0);
  const page = await context.newPage();
  const complaints: string[] = [];
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") complaints.push(message.text());
  });
  page.on("dialog", (dialog) => complaints.push(`a dialog: ${dialog.message()}`));
  ends.push(
    stop,
    () => dashboard.close(),
    () => context.close(),
  );
  await page.goto(url);
  return { page, dashboard, url, complaints };
}

/** What is shown of a lock, by its key. */
const rowOf = (page: Page, key: string) =>
  page.locator("#rows tr").filter({ has: page.getByText(key, { exact: true }) });

const everybody: DashboardOptions = { authorize: () => "the test", allowChanges: true };

describe.each(Object.entries(stores))("on %s", (_name, open) => {
  let store: Opened;
  let backend: SyncGuardBackend;
  beforeAll(async () => {
    store = await open();
  });
  afterAll(async () => {
    await store.stop();
  });
  beforeEach(() => {
    backend = store.open();
    ends.push(() => backend.close());
  });

  it("shows a lock once it is acquired, until it is released", async () => {
    const { page, complaints } = await show(backend);
    await page.getByText("No lock is held in this store").waitFor();
    const held = await backend.lock("job:nightly", { ttlMs: 60_000, owner: "worker 7" });
    const row = rowOf(page, "job:nightly");
    await row.waitFor();
    expect(await row.innerText()).toContain("worker 7");
    expect(await row.innerText()).toContain(held.fence);
    await held.release();
    await row.waitFor({ state: "detached" });
    await page.getByText("No lock is held in this store").waitFor();
    expect(complaints).toEqual([]);
  });

  it("counts down the lock of a holder that was killed", async () => {
    const { page } = await show(backend);
    const { child } = startProgram(process.execPath, [hold, "killed"], {
      SYNCGUARD_URL: store.url,
    });
    const row = rowOf(page, "killed");
    await row.waitFor();
    child.kill("SIGKILL");
    const left = row.locator("[headers=Ends] bdi");
    const seconds = async (): Promise<number> =>
      parseFloat((await left.innerText()).replace("in ", ""));
    await until(async () => (await seconds()) < 2.5);
    await until(async () => (await row.getAttribute("class")) === "ending");
    await row.waitFor({ state: "detached" });
  });

  it("fills a bar with the slots that are in use", async () => {
    const { page } = await show(backend);
    const slots: HeldSlot[] = [];
    for (let count = 0; count < 5; count += 1) {
      slots.push(await backend.lock({ key: "api:partner", slots: 5 }, { ttlMs: 60_000 }));
    }
    await page.getByText("5 slots in use: 1, 2, 3, 4, 5").waitFor();
    const bar = page.getByRole("meter", { name: "Slots of api:partner in use" });
    const filled = async (): Promise<unknown[]> => [
      await bar.getAttribute("value"),
      await bar.getAttribute("max"),
    ];
    expect(await filled()).toEqual(["5", "5"]);
    // Which number one gets is left to chance.
    await slots[1]?.release();
    const left = [1, 2, 3, 4, 5].filter((number) => number !== slots[1]?.slot);
    await page.getByText(`4 slots in use: ${left.join(", ")}`).waitFor();
    expect(await filled()).toEqual(["4", "5"]);
    for (const slot of slots) await slot.release();
    await page.locator("#slots").waitFor({ state: "hidden" });
  });

  it("shows a set as one, and how often it was extended", async () => {
    const { page } = await show(backend);
    await using held = await backend.lock(["account:1", "account:2"], {
      ttlMs: 3_000,
      autoExtend: true,
    });
    await page.getByText("together with account:2 (one set)").waitFor();
    await rowOf(page, "account:1")
      .getByText(/^\d+ times?$/)
      .waitFor();
    held.assertHeld();
  });

  it("guesses from an owner that was named what another process was granted together", async () => {
    const another = store.open();
    ends.push(() => another.close());
    const named = await another.lock(["named:1", "named:2"], { owner: "worker 7" });
    const others = await another.lock(["other:1", "other:2"]);
    ends.push(named.release, others.release);
    const { page } = await show(backend);
    await page.getByText("together with named:2 (same owner, same millisecond)").waitFor();
    const row = rowOf(page, "other:1");
    await row.getByText(`:${process.pid}`).waitFor();
    expect(await row.innerText()).not.toContain("together");
  });

  it("force-releases the lock that is shown, by a button", async () => {
    const { page, complaints } = await show(backend, everybody);
    const options = { ttlMs: 60_000, owner: null, onLost: () => undefined };
    const held = await backend.lock("stuck", options);
    await page.getByRole("button", { name: "Force-release stuck" }).click();
    await page.getByText("Held by somebody without a label").waitFor();
    await page.getByRole("button", { name: "Cancel" }).click();
    expect(await backend.isLocked({ key: "stuck" })).toBe(true);
    await page.getByRole("button", { name: "Force-release stuck" }).click();
    await page.locator("#confirm").click();
    await page.getByText("Done: the lock is released").waitFor();
    expect(await backend.isLocked({ key: "stuck" })).toBe(false);
    expect(held.signal.aborted).toBe(true);
    await rowOf(page, "stuck").waitFor({ state: "detached" });
    expect(complaints).toEqual([]);
  });

  it("finds a key in the store, and marks a period of it", async () => {
    const { page } = await show(backend, everybody);
    await page.getByLabel("Key or owner").fill("report");
    await page.getByRole("button", { name: "Search the store" }).click();
    await page.getByText("no period is stored as done").waitFor();
    await page.getByRole("button", { name: "Mark a period as done" }).click();
    await page.getByRole("textbox", { name: "Period" }).fill("2026-11-25");
    await page.locator("#confirm").click();
    await page.getByText("done for 2026-11-25").waitFor();
    const run = await backend.once("report", { due: "2026-11-25", ttlMs: 5_000 }, () => "ran");
    expect(run).toMatchObject({ ran: false, reason: "done" });
    await page.getByRole("button", { name: "Mark none as done" }).click();
    await page.locator("#confirm").click();
    await page.getByText("no period is stored as done").waitFor();
  });

  it("shows hostile keys as text, and does nothing of what they say", async () => {
    const { page, complaints } = await show(backend, everybody);
    const long = "\u{1f512}".repeat(128);
    const keys = [
      "<script>alert(1)</script><img src=x onerror=alert(2)>",
      "\u202egpj.exe\u202c \u2067abc",
      "\u05de\u05e4\u05ea\u05d7 (right to left)",
      "'\"><b>bold</b>&amp;\\u0000",
      long,
    ];
    expect(Buffer.byteLength(long)).toBe(512);
    const owner = "<script>alert(3)</script>\u202e";
    const held = [];
    for (const key of keys)
      held.push(await backend.lock(key, { ttlMs: 60_000, owner, onLost: () => undefined }));
    await page.getByText("5 locks", { exact: true }).waitFor();
    const shown = await page.locator("#rows [headers=Key] bdi").allInnerTexts();
    const bare = keys.map((key) => key.replace(/[\u202e\u202c\u2067]/g, (c) => `\\u${c.charCodeAt(0).toString(16)}`)); // prettier-ignore
    expect(shown.sort()).toEqual(bare.sort());
    expect(await page.locator("#rows script, #rows img, #rows b").count()).toBe(0);
    const width = await page.evaluate("document.documentElement.scrollWidth - innerWidth");
    expect(width).toBe(0);
    await page.getByRole("button", { name: `Force-release ${keys[0]}` }).click();
    await page.locator("#confirm").click();
    await page.getByText("4 locks", { exact: true }).waitFor();
    expect(complaints).toEqual([]);
    for (const lock of held) await lock.release();
  });
});

describe("the page", () => {
  const folder = temporaryFolder();
  let backend: SyncGuardBackend;
  let files = 0;
  beforeEach(() => {
    backend = createSqliteBackend(join(folder.path, `${(files += 1)}.db`));
    ends.push(() => backend.close());
  });
  afterAll(() => folder.remove());

  it("has no button without allowChanges", async () => {
    const { page } = await show(backend);
    await backend.lock("mine", { ttlMs: 60_000 });
    await rowOf(page, "mine").waitFor();
    expect(await page.getByRole("button", { name: "Force-release" }).count()).toBe(0);
  });

  it("does nothing for a page of another origin, and shows it nothing", async () => {
    const { page, url } = await show(backend, everybody);
    await backend.lock("mine", { ttlMs: 60_000 });
    const id = await rowOf(page, "mine").getAttribute("id");
    const headers = { "syncguard-do": "force-release", "syncguard-lock": id?.slice(5) ?? "" };
    const form = `<form method="post" action="${url}"><button>Win</button></form>`;
    const evil = await serve((_request, response) => {
      response.setHeader("content-type", "text/html");
      response.end(`${form}<iframe src="${url}"></iframe>`);
    });
    ends.push(evil.stop);
    const other = await page.context().newPage();
    const answers: number[] = [];
    other.on("response", (response) => {
      if (response.request().method() === "POST") answers.push(response.status());
    });
    await other.goto(evil.url.replace("127.0.0.1", "localhost"));
    const tries = [
      { query: "", init: { method: "POST", headers } },
      { query: "", init: { method: "POST", mode: "no-cors", headers } },
      { query: "?locks", init: { credentials: "include" } },
    ] as const;
    for (const { query, init } of tries) {
      const code = `fetch(${JSON.stringify(url + query)}, ${JSON.stringify(init)}).then((response) => response.text()).catch(() => "")`;
      expect(await other.evaluate(code)).toBe("");
    }
    expect(await other.frames()[1]?.evaluate("document.body.textContent")).not.toContain("mine");
    await other.getByRole("button", { name: "Win" }).click();
    await other.getByText("the request comes from another page").waitFor();
    expect(new Set(answers)).toEqual(new Set([403]));
    expect(await backend.isLocked({ key: "mine" })).toBe(true);
  });

  it("shows who waits in this process, and which lock is that of a leader in it", async () => {
    const { page, complaints } = await show(backend);
    const stopping = new AbortController();
    const leading = backend.lead("report", (term) => once(term.signal, "abort"), {
      signal: stopping.signal,
    });
    await rowOf(page, "report").getByText("leads in this process").waitFor();
    const held = await backend.lock("busy", { ttlMs: 60_000 });
    const acquisition = { timeoutMs: 100_000 };
    const waiting = [
      backend.lock("busy", { acquisition }),
      backend.lock(["busy", "free"], { acquisition }),
    ];
    const lines = page.locator("#waiting li");
    for (const line of [/^busy\s*2 calls waiting, since /, /^free\s*1 call waiting, since /]) {
      await lines.filter({ hasText: line }).waitFor();
    }
    await held.release();
    await Promise.all(waiting.map(async (next) => (await next).release()));
    await page.locator("#waiting").waitFor({ state: "hidden" });
    stopping.abort();
    await leading;
    expect(complaints).toEqual([]);
  });

  it("names the gate of a writer who waits for readers, and shows it as no slot", async () => {
    const { page } = await show(backend);
    const reader = await backend.lock("catalogue", { mode: "shared", ttlMs: 600_000 });
    const acquisition = { timeoutMs: 300_000, maxRetries: Infinity };
    const writing = backend.lock("catalogue", { acquisition });
    await rowOf(page, "catalogue, gate").waitFor();
    expect(await page.locator("#slots").isHidden()).toBe(true);
    await reader.release();
    await (await writing).release();
    await rowOf(page, "catalogue, gate").waitFor({ state: "detached" });
  });

  it("keeps what is searched for out of its address", async () => {
    const { page, url } = await show(backend);
    await page.getByText("No lock is held in this store").waitFor();
    const asked: string[] = [];
    page.on("request", (request) => asked.push(request.url()));
    await page.getByLabel("Key or owner").fill("secret");
    await page.keyboard.press("Enter");
    await page.getByText("No lock was found with this text").waitFor();
    expect([page.url(), ...asked]).toEqual([url, `${url}?locks`]);
  });

  it("is filtered and sorted as one types", async () => {
    const { page } = await show(backend);
    await backend.lock("a:1", { ttlMs: 60_000, owner: "zoe" });
    await backend.lock("b:2", { ttlMs: 30_000, owner: "amy" });
    await page.getByText("2 locks", { exact: true }).waitFor();
    const keys = (): Promise<string[]> => page.locator("#rows [headers=Key] bdi").allInnerTexts();
    await page.getByLabel("Order").selectOption("by owner");
    expect(await keys()).toEqual(["b:2", "a:1"]);
    await page.getByLabel("Order").selectOption("by key");
    expect(await keys()).toEqual(["a:1", "b:2"]);
    await page.getByLabel("Key or owner").fill("AMY");
    expect(await keys()).toEqual(["b:2"]);
    await page.getByText("1 of 2 locks").waitFor();
  });

  it("is used with the keyboard alone, and keeps the focus while rows come and go", async () => {
    const { page } = await show(backend, everybody);
    await backend.lock("first", { ttlMs: 60_000 });
    await rowOf(page, "first").waitFor();
    await page.getByLabel("Order").focus();
    await page.keyboard.press("Tab");
    const focused = () => page.evaluate("document.activeElement.getAttribute('aria-label')");
    expect(await focused()).toBe("Force-release first");
    await page.getByLabel("Order").selectOption("newest first");
    await page.getByRole("button", { name: "Force-release first" }).focus();
    const second = await backend.lock("second", { ttlMs: 60_000 });
    await rowOf(page, "second").waitFor();
    expect(await focused()).toBe("Force-release first");
    await page.keyboard.press("Enter");
    await page.keyboard.press("Escape");
    expect(await focused()).toBe("Force-release first");
    await second.release();
  });

  it.each([
    ["light", 1440],
    ["light", 390],
    ["dark", 1440],
    ["dark", 390],
  ] as const)("has no violation that axe finds: %s, %i px", async (colorScheme, width) => {
    const { page } = await show(backend, everybody);
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width, height: 900 });
    const check = async (): Promise<string[]> => {
      await page.evaluate(axe.source);
      return await page.evaluate(
        "axe.run().then(({ violations }) => violations.map(({ id, nodes }) => id + ': ' + nodes[0].html))",
      );
    };
    expect(await check()).toEqual([]);
    await backend.lock({ key: "api", slots: 3 }, { ttlMs: 60_000 });
    await backend.lock("a", { ttlMs: 60_000, owner: "me" });
    await rowOf(page, "a").waitFor();
    expect(await check()).toEqual([]);
    await page.getByRole("button", { name: "Force-release a", exact: true }).click();
    expect(await check()).toEqual([]);
    expect(await page.evaluate("document.documentElement.scrollWidth - innerWidth")).toBe(0);
  });
});

it("says what is wrong with a store that is down, and goes on once it is up", async () => {
  const server = await startRedis();
  ends.push(server.stop);
  const backend = createRedisBackend(server.url);
  ends.push(() => backend.close());
  const { page } = await show(backend);
  await page.getByText("No lock is held in this store").waitFor();
  await server.kill();
  await page.getByRole("alert").getByText("start the store, or correct the URL").waitFor();
  await server.start();
  await page.getByRole("alert").waitFor({ state: "hidden" });
  await backend.lock("after", { ttlMs: 60_000 });
  await rowOf(page, "after").waitFor();
});
