/** The store that a dashboard looks at, by the functions that `list`, `status` and `mark` use. */

import { collect } from "../inspection/listing.js";
import { ofLookup, type ShownLock, shownLock } from "../inspection/locks.js";
import { type Mark, readMark } from "../inspection/marks.js";
import { directAccess, type Internals, internalsOf } from "../holding/internals.js";
import type { RawRecord } from "../native/outcome.js";
import { invalid } from "../options/validation.js";
import { checkBackend } from "../values/arguments.js";
import type { SyncGuardBackend } from "../values/types.js";
import { normalizeAndValidateKey } from "../values/values.js";

/** A lock as the page shows it. */
export type Row = ShownLock & {
  /** How often it was extended, if this process holds it. */
  extensions?: number;
  /** How often it was seen to be extended since somebody watches. */
  seen?: number;
  /** The keys that were granted with it, if this process holds them. */
  set?: string[];
  /** Whether it is that of a leader in this process. */
  leads?: true;
  /** For how long the lock on this key was usually held, of the last times that were seen. */
  usualMs?: number;
};

/** Those in this process who wait for a key. */
type Waiting = { readonly key: string; readonly count: number; readonly waitedMs: number };

export type Found = {
  readonly rows: Row[];
  readonly waiting: Waiting[];
  readonly next: string | null;
  /** The store's clock; unknown without a lock. */
  readonly nowMs: number | null;
  /** For which period the key is done that was searched for. */
  readonly done?: Mark | null;
};

const NAMES: Readonly<Record<string, string>> = {
  ...{ redis: "Redis", postgres: "PostgreSQL", firestore: "Firestore", sqlite: "SQLite" },
};

/** So many locks are shown at a time. */
const PAGE = 1_000;
/** A look, or a search, ends after so long, and says that there may be more. */
const LONGEST_LOOK_MS = 1_000;
/** A search looks at so many locks at most: on Firestore each of them is paid for. */
const MOST_SEARCHED = 10_000;
/** Whoever has asked for a lock for so long waits for it. */
const SHORTEST_WAIT_MS = 100;
/** So many locks that were shown can be released. What pages show live is shown again and again. */
const MOST_REMEMBERED = 20_000;

export class Looked {
  /** The look before: a store is looked at once at a time. */
  private before: Promise<unknown> = Promise.resolve();
  /** Without the wrappers of a backend: a look is no operation of its users. */
  readonly backend: SyncGuardBackend;
  readonly internals: Internals;
  /** Which store it is. */
  readonly name: string;
  /** What was shown, by the hash of the lock id: the page knows no lock ids. */
  readonly shown = new Map<string, { key: string; lockId: string }>();

  /** @throws LockError `InvalidArgument` for a backend whose locks cannot be listed */
  constructor(backend: SyncGuardBackend) {
    checkBackend(backend);
    const internals = internalsOf(backend);
    this.backend = (internals?.origin ?? backend) as SyncGuardBackend;
    if (internals === undefined || directAccess(this.backend) === undefined) {
      throw invalid("backend must be one of this package, on a store whose locks can be listed");
    }
    this.internals = internals;
    const { backend: kind } = this.backend.capabilities as { backend?: string };
    this.name = NAMES[kind ?? ""] ?? "a store";
  }

  /**
   * A page of the locks with that text in their key or owner, as far as they are found in time, from the cursor on. Without a cursor,
   * the lock on exactly that key comes first, and it is told for which period that key is done.
   */
  page(after?: string, text?: string): Promise<Found> {
    const found = this.before.then(() => this.look(after, text));
    this.before = found.catch(() => undefined);
    return found;
  }

  private async look(after = "", text = ""): Promise<Found> {
    const untilMs = performance.now() + LONGEST_LOOK_MS;
    if (this.shown.size > MOST_REMEMBERED) this.shown.clear();
    const key = after === "" ? keyOf(text) : undefined;
    const info = key === undefined ? null : await this.backend.lookup({ key });
    const exact = info === null ? [] : [ofLookup(info)];
    const done = key === undefined ? {} : { done: await readMark(this.backend, key) };
    const wanted = text.normalize().toLowerCase();
    const { locks, next } = await collect(this.backend, {
      ...{ limit: PAGE, after: after || undefined, untilMs, most: MOST_SEARCHED },
      only: ({ key: name, owner = "" }) => `${name}\n${owner}`.toLowerCase().includes(wanted),
    });
    const all = new Map([...exact, ...locks].map((lock) => [lock.lockId, lock]));
    const rows = [...all.values()].map((lock) => this.rowOf(lock));
    const nowMs = Math.max(0, ...[...all.values()].map(({ readAtMs }) => readAtMs)) || null;
    return { rows, waiting: this.waiting(), next, nowMs, ...done };
  }

  /** Those in this process who wait, the longest first. */
  private waiting(): Waiting[] {
    const queues = internalsOf(this.backend)?.queues?.() ?? [];
    const nowMs = this.internals.clock.elapsed();
    return queues
      .map(([key, { count, sinceMs }]) => ({ key, count, waitedMs: nowMs - sinceMs }))
      .filter(({ waitedMs }) => waitedMs >= SHORTEST_WAIT_MS)
      .sort((a, b) => b.waitedMs - a.waitedMs)
      .slice(0, PAGE);
  }

  private rowOf(lock: RawRecord): Row {
    const row: Row = shownLock(lock, false);
    this.shown.set(row.lockIdHash, { key: row.key, lockId: lock.lockId });
    const lease = this.internals.grants?.get(lock.lockId);
    const { extensions } = lease?.report() ?? {};
    if (extensions !== undefined) row.extensions = extensions;
    if (lease?.leads === true) row.leads = true;
    if (lease?.isSet === true) row.set = [...new Set(lease.keys)];
    return row;
  }
}

/** The text as a key, if it can be one. */
function keyOf(text: string): string | undefined {
  try {
    return normalizeAndValidateKey(text);
  } catch {
    return undefined;
  }
}
