/** Which locks there are. */

import type { RawRecord } from "../native/outcome.js";
import { GATE, parted } from "../values/slots.js";
import type { SyncGuardBackend } from "../values/types.js";
import { direct } from "./direct.js";

/** The longest page that the stores are asked for. */
const PAGE = 100;

/** What was found, and where to go on; `null` once all were looked at. */
type Page = { locks: RawRecord[]; next: string | null };

/** Which locks are wanted, and when to stop looking for them. */
type Wanted = {
  /** So many of them are enough. */
  readonly limit: number;
  /** Where an earlier look has stopped. */
  readonly after?: string | undefined;
  /** Until when to look, as a time of `performance.now()`. */
  readonly untilMs?: number;
  /** At how many locks to look. */
  readonly most?: number;
  readonly only?: (lock: RawRecord) => boolean;
};

/** Reads pages until there are enough locks. Redis may give one twice. */
export async function collect(backend: SyncGuardBackend, wanted: Wanted): Promise<Page> {
  const { limit, after, untilMs = Infinity, most = Infinity, only = () => true } = wanted;
  const found = new Map<string, RawRecord>();
  let next = after === undefined ? null : decode(after);
  let looked = 0;
  do {
    const got = await page(backend, next ?? undefined, Math.min(PAGE, limit - found.size));
    for (const lock of got.locks.filter(only)) found.set(lock.lockId, lock);
    looked += got.locks.length;
    next = got.next;
  } while (next !== null && found.size < limit && looked < most && performance.now() < untilMs);
  return { locks: grouped(found), next: next === null ? null : encode(next) };
}

/** The slots of a key that are in use, by number. How many there can be is not stored, so all locks are looked at. */
export async function slotsInUse(backend: SyncGuardBackend, key: string): Promise<RawRecord[]> {
  const name = key.normalize();
  const only = (lock: RawRecord): boolean => {
    const { key: base, slot } = parted(lock.key);
    return slot !== undefined && slot !== GATE && base === name;
  };
  return (await collect(backend, { limit: Infinity, only })).locks;
}

/** The locks in the order in which they were found, but for the gate and the slots of a key, which stand where the first of them does. */
function grouped(found: ReadonlyMap<string, RawRecord>): RawRecord[] {
  const groups = new Map<string, { lock: RawRecord; slot: number }[]>();
  for (const lock of found.values()) {
    const { key, slot } = parted(lock.key);
    // The lock on the key itself is another matter.
    const name = slot === undefined ? lock.key : `${key} `;
    const group = groups.get(name) ?? [];
    group.push({ lock, slot: slot ?? 0 });
    groups.set(name, group);
  }
  return [...groups.values()].flatMap((group) =>
    group.sort((a, b) => a.slot - b.slot).map(({ lock }) => lock),
  );
}

async function page(
  backend: SyncGuardBackend,
  after: string | undefined,
  limit: number,
): Promise<Page> {
  const { text: json } = await direct(backend)("", undefined, (store) => store.list(after, limit));
  return JSON.parse(json) as Page;
}

// A cursor may be a key, and those may be anything. Encoded, it can be put on a command line.
const encode = (cursor: string): string => Buffer.from(cursor).toString("base64url");
const decode = (cursor: string): string => Buffer.from(cursor, "base64url").toString();
