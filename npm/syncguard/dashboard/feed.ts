/** What becomes of the locks, for all pages that are open: the store is looked at once for all of them. */

import { isDeepStrictEqual } from "node:util";
import { type Trouble, troubleOf } from "../inspection/trouble.js";
import type { Found, Looked, Row } from "./store.js";

/** After a look comes a pause that is so many times as long: looks are a tenth of the time at most, however much the store has. */
const PAUSE = 10;
/** From one try to the next, while the store cannot be asked. */
const RETRY_MS = 1_000;
/** Of so many keys the usual time is known; of each, by so many holds. */
const MOST_KEYS = 2_000;
const HOLDS = 9;
/** From so many holds on, there is a usual time. */
const FEWEST_HOLDS = 3;

/** What a page is told; all of it first, and the changes from then on. */
type News =
  | (Pick<Found, "nowMs" | "next" | "waiting"> & {
      readonly type: "all" | "changes";
      readonly store: string;
      readonly allowsChanges: boolean;
      readonly set: readonly Row[];
      /** Hashes of the lock ids of those that are there no more. */
      readonly gone: readonly string[];
      readonly everyMs: number;
    })
  | ({ readonly type: "trouble" } & Trouble);

/** News as an event of a stream: it is encoded once for all who listen. */
type Bytes = Uint8Array<ArrayBuffer>;
/** Is told nothing once it is over. */
type Listener = (news?: Bytes) => void;

export const encode = (text: string): Bytes => new TextEncoder().encode(text);
const eventOf = (news: News): Bytes => encode(`data: ${JSON.stringify(news)}\n\n`);

export class Feed {
  private readonly listeners = new Set<Listener>();
  private rows = new Map<string, Row>();
  /** How long the lock on a key was held, of the last times. */
  private readonly holds = new Map<string, number[]>();
  private last: News | undefined;
  /** When the last look ended. */
  private lookedMs = 0;
  private timer: NodeJS.Timeout | undefined;
  private isLooking = false;

  constructor(
    private readonly store: Looked,
    private readonly intervalMs: number,
    private readonly allowsChanges: boolean,
  ) {}

  /** Tells `listener` what is there now and what becomes of it, until the function that is returned is called. */
  listen(listener: Listener): () => void {
    this.listeners.add(listener);
    const now = this.now();
    if (now !== undefined) listener(now);
    if (this.listeners.size === 1) this.lookIn(0);
    return () => {
      this.listeners.delete(listener);
      if (this.listeners.size > 0) return;
      clearTimeout(this.timer);
      // Nobody watches what happens from here on: what is known now would be told as if it were new.
      this.rows.clear();
      this.last = undefined;
    };
  }

  /** All that is known; `undefined` before the first look. */
  now(): Bytes | undefined {
    const { last } = this;
    if (last === undefined || last.type === "trouble") return last && eventOf(last);
    const nowMs = last.nowMs === null ? null : last.nowMs + performance.now() - this.lookedMs;
    return eventOf({ ...last, nowMs, type: "all", set: [...this.rows.values()], gone: [] });
  }

  /** Ends it for all who listen. */
  close(): void {
    for (const listener of this.listeners) listener();
  }

  /** Looks at the store in so many milliseconds, and not when it would have been looked at. */
  lookIn(ms: number): void {
    if (this.isLooking || this.listeners.size === 0) return;
    clearTimeout(this.timer);
    // Whoever watches has a connection, which keeps the process alive.
    this.timer = setTimeout(() => void this.look(), ms).unref();
  }

  private async look(): Promise<void> {
    this.isLooking = true;
    const startedMs = performance.now();
    let waitMs = Math.max(this.intervalMs, RETRY_MS);
    let news: Bytes | undefined;
    try {
      const found = await this.store.page();
      this.lookedMs = performance.now();
      waitMs = Math.max(this.intervalMs, Math.round(PAUSE * (this.lookedMs - startedMs)));
      if (this.listeners.size > 0) news = this.take(found, waitMs);
    } catch (error) {
      const trouble: News = { type: "trouble", ...troubleOf(error) };
      if (!isDeepStrictEqual(trouble, this.last)) news = eventOf(trouble);
      if (this.listeners.size > 0) this.last = trouble;
    }
    if (news !== undefined) for (const listener of this.listeners) listener(news);
    this.isLooking = false;
    this.lookIn(waitMs);
  }

  /** Notes what was found, and gives what is new. */
  private take({ rows, waiting, nowMs, next }: Found, everyMs: number): Bytes | undefined {
    const { rows: before, last, allowsChanges } = this;
    const known = last?.type === "trouble" ? undefined : last;
    this.rows = new Map(rows.map((row) => [row.lockIdHash, row]));
    for (const row of rows) this.complete(row, before.get(row.lockIdHash));
    const set = rows.filter(
      (row) => !isDeepStrictEqual(lasting(before.get(row.lockIdHash)), lasting(row)),
    );
    const lost = [...before.values()].filter(({ lockIdHash }) => !this.rows.has(lockIdHash));
    // Of a store that is not shown whole, what is missing may be elsewhere by now.
    if (next === null && known) for (const row of lost) this.noteHold(row);
    const gone = lost.map(({ lockIdHash }) => lockIdHash);
    const about = { store: this.store.name, allowsChanges };
    this.last = { type: "changes", nowMs, set, gone, waiting, next, everyMs, ...about };
    if (known === undefined) return this.now();
    const [old, now] = [known, this.last].map((of) => [of.next === null, of.waiting.map(lasting)]);
    const isNew = set.length > 0 || gone.length > 0 || !isDeepStrictEqual(old, now);
    return isNew ? eventOf(this.last) : undefined;
  }

  /** Notes for how long a lock was held that is gone: as long as it was seen. */
  private noteHold({ key, gate, acquiredAtMs, expiresAtMs, expiresInMs }: Row): void {
    // Whoever holds a gate waits: it says nothing of how long work on the key takes.
    if (gate === true) return;
    const heldMs = expiresAtMs - expiresInMs - acquiredAtMs;
    const holds = [...(this.holds.get(key) ?? []), heldMs].slice(-HOLDS);
    // The newest at the end: the oldest are forgotten first.
    this.holds.delete(key);
    this.holds.set(key, holds);
    const [oldest = key] = this.holds.keys();
    if (this.holds.size > MOST_KEYS) this.holds.delete(oldest);
  }

  /** Adds what is known of it from earlier looks. */
  private complete(row: Row, old: Row | undefined): void {
    const wasExtended = old !== undefined && old.expiresAtMs !== row.expiresAtMs;
    const seen = (old?.seen ?? 0) + Number(wasExtended);
    if (seen > 0) row.seen = seen;
    const holds = this.holds.get(row.key) ?? [];
    if (row.gate === true || holds.length < FEWEST_HOLDS) return;
    row.usualMs = [...holds].sort((a, b) => a - b)[Math.floor(holds.length / 2)] as number;
  }
}

/** What is shown, but for what only goes by with the time: that, the page knows. */
const lasting = (shown?: object): object => ({ ...shown, expiresInMs: 0, waitedMs: 0 });
