/** The stream of events of `syncguard/dashboard`: without a browser. */

import { createRequire } from "node:module";
import { createDashboard } from "syncguard/dashboard";
import { describe, expect, it, vi } from "vitest";
import { encode, Feed } from "../../dist/dashboard/feed.js";
import { streamOf } from "../../dist/dashboard/streams.js";
import { authorize, backend, ends, found, get, newsOf } from "./stage";

// A disk is slow on a machine that has much else to do.
vi.setConfig({ testTimeout: 120_000 });

describe("the stream of events", () => {
  it("tells all who watch of what comes and goes, until the dashboard is closed", async () => {
    const dashboard = createDashboard(backend, { authorize, intervalMs: 50 });
    const streams = await Promise.all(
      Array.from({ length: 20 }, async () => newsOf(await dashboard(get("?events")))),
    );
    const next = (): Promise<unknown[]> =>
      Promise.all(streams.map(async (stream) => (await stream.next()).value as unknown));
    const all = (news: object): unknown[] =>
      streams.map(() => expect.objectContaining(news) as unknown);
    const about = { store: "SQLite", allowsChanges: false };
    expect(await next()).toEqual(all({ type: "all", ...about, set: [] }));
    const held = await backend.lock("k", { ttlMs: 60_000 });
    const { fence } = held;
    const set = [expect.objectContaining({ key: "k", fence })];
    expect(await next()).toEqual(all({ type: "changes", set }));
    await held.release();
    expect(await next()).toEqual(all({ type: "changes", set: [], gone: [expect.any(String)] }));
    dashboard.close();
    for (const stream of streams) expect((await stream.next()).done).toBe(true);
  });

  it("can be cancelled by its reader", async () => {
    const dashboard = createDashboard(backend, { authorize });
    const { body } = await dashboard(get("?events"));
    await expect(body?.cancel()).resolves.toBeUndefined();
    dashboard.close();
  });

  it("looks at the store as often for many as for one, and never for nobody", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
    ends.push(() => vi.useRealTimers());
    let looks = 0;
    const page = async (): Promise<unknown> => {
      looks += 1;
      return { rows: [], waiting: [], next: null, nowMs: null };
    };
    const feed = new Feed({ page } as never, 500, false);
    const leave = Array.from({ length: 50 }, () => feed.listen(() => undefined));
    await vi.advanceTimersByTimeAsync(5_000);
    expect(looks).toBe(11);
    for (const one of leave.slice(1)) one();
    await vi.advanceTimersByTimeAsync(5_000);
    expect(looks).toBe(21);
    leave[0]?.();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(looks).toBe(21);
  });

  it("is of a store that is asked for one list at a time, also by those who search", async () => {
    const { AddonStore } = createRequire(import.meta.url)("../../dist/native/store.js") as {
      AddonStore: { prototype: { list: (...args: unknown[]) => Promise<unknown> } };
    };
    const list = AddonStore.prototype.list;
    let [asked, most, now] = [0, 0, 0];
    const spy = vi.spyOn(AddonStore.prototype, "list").mockImplementation(async function (
      this: unknown,
      ...args
    ) {
      asked += 1;
      most = Math.max(most, (now += 1));
      return await list.apply(this, args).finally(() => (now -= 1));
    });
    ends.push(() => {
      spy.mockRestore();
    });
    const dashboard = createDashboard(backend, { authorize, intervalMs: 50 });
    ends.push(() => {
      dashboard.close();
    });
    const news = newsOf(await dashboard(get("?events")));
    await Promise.all(
      Array.from({ length: 10 }, () => found(dashboard, { "syncguard-search": "k" })),
    );
    await news.next();
    expect(asked).toBeGreaterThan(10);
    expect(most).toBe(1);
  });

  /** What is told of a store where each look finds the next of these. */
  async function toldOf(looks: { rows: object[]; waiting?: object[] }[]): Promise<unknown[]> {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
    ends.push(() => vi.useRealTimers());
    const count = looks.length;
    const page = async (): Promise<unknown> => ({
      ...{ next: null, nowMs: 1, waiting: [] },
      ...looks.shift(),
    });
    const feed = new Feed({ page } as never, 500, false);
    const told: unknown[] = [];
    const hear = (news?: Uint8Array): void => {
      const text = Buffer.from(news ?? []).toString();
      told.push(JSON.parse(text.slice("data: ".length)));
    };
    const leave = feed.listen(hear);
    await vi.advanceTimersByTimeAsync((count - 1) * 500);
    leave();
    return told;
  }

  const lock = { key: "k", lockIdHash: "1", expiresAtMs: 9, expiresInMs: 1, acquiredAtMs: 1 };

  it("tells of what changes alone, and not of what only goes by", async () => {
    const told = await toldOf([
      { rows: [lock] },
      { rows: [{ ...lock, expiresInMs: 0 }] },
      { rows: [{ ...lock, expiresAtMs: 19 }] },
      { rows: [] },
      { rows: [], waiting: [{ key: "k", count: 1, waitedMs: 100 }] },
      { rows: [], waiting: [{ key: "k", count: 1, waitedMs: 600 }] },
      { rows: [], waiting: [{ key: "k", count: 2, waitedMs: 1_100 }] },
    ]);
    expect(told).toMatchObject([
      { set: [lock], gone: [], waiting: [] },
      { set: [{ expiresAtMs: 19, seen: 1 }], gone: [] },
      { set: [], gone: ["1"] },
      { waiting: [{ count: 1, waitedMs: 100 }] },
      { waiting: [{ count: 2, waitedMs: 1_100 }] },
    ]);
  });

  it("looks seldom at a store where that takes long", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
    ends.push(() => vi.useRealTimers());
    let looks = 0;
    const page = async (): Promise<unknown> => {
      looks += 1;
      await new Promise((resolve) => setTimeout(resolve, 1_000));
      return { rows: [], waiting: [], next: "more", nowMs: null };
    };
    const feed = new Feed({ page } as never, 500, false);
    ends.push(feed.listen(() => undefined));
    // Each takes a second, and is followed by ten.
    await vi.advanceTimersByTimeAsync(32_000);
    expect(looks).toBe(3);
  });

  it("ends after ten minutes, so that authorize() is asked again", async () => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    ends.push(() => vi.useRealTimers());
    const news = newsOf(await createDashboard(backend, { authorize })(get("?events")));
    expect((await news.next()).value).toMatchObject({ type: "all" });
    vi.advanceTimersByTime(600_000);
    expect((await news.next()).done).toBe(true);
  });

  it("gives a slow reader all that there is, in place of what it has missed", async () => {
    let tell: (news?: Uint8Array) => void = () => undefined;
    const listen = (listener: typeof tell): (() => void) => {
      tell = listener;
      return () => undefined;
    };
    const event = (told: object): Uint8Array => encode(`data: ${JSON.stringify(told)}\n\n`);
    const now = (): Uint8Array => event({ type: "all", set: ["as it is now"] });
    const news = newsOf(new Response(streamOf({ listen, now } as never) as never));
    for (let number = 0; number < 10; number += 1) {
      tell(event({ type: "changes", number, text: "x".repeat(100_000) }));
    }
    const types: unknown[] = [];
    for (;;) {
      const told = (await news.next()).value as { number?: number; type: string };
      types.push(told.number ?? told.type);
      if (told.type === "all") break;
    }
    expect(types).toEqual([0, 1, 2, "all"]);
    tell();
    expect((await news.next()).done).toBe(true);
  });

  it("tells of what lasts longer than usual", async () => {
    const dashboard = createDashboard(backend, { authorize, intervalMs: 50 });
    ends.push(() => dashboard.close());
    const news = newsOf(await dashboard(get("?events")));
    const next = async (): Promise<{ set: { usualMs?: number }[]; gone: string[] }> =>
      (await news.next()).value as never;
    await next();
    for (let count = 0; count < 3; count += 1) {
      const held = await backend.lock("k", { ttlMs: 60_000 });
      expect((await next()).set[0]?.usualMs).toBeUndefined();
      await held.release();
      expect((await next()).gone).toHaveLength(1);
    }
    await backend.lock("k", { ttlMs: 60_000 });
    expect((await next()).set[0]?.usualMs).toBeGreaterThanOrEqual(0);
  });

  it("knows no usual time of a gate, and none of its key by it", async () => {
    const gate = { ...lock, lockIdHash: "2", gate: true };
    const thrice = (row: object) =>
      [row, row, row].flatMap((one) => [{ rows: [one] }, { rows: [] }]);
    const ofKey = await toldOf([...thrice(gate), { rows: [lock] }]);
    expect(ofKey.at(-1)).toMatchObject({ set: [lock] });
    expect(ofKey.at(-1)).not.toHaveProperty("set.0.usualMs");
    const ofGate = await toldOf([...thrice(lock), { rows: [gate] }]);
    expect(ofGate.at(-1)).toMatchObject({ set: [gate] });
    expect(ofGate.at(-1)).not.toHaveProperty("set.0.usualMs");
  });
});
