/** Which locks there are. */

import type { RawRecord } from "../native/outcome.js";
import { type Backend, direct } from "./store.js";
import { parted } from "../native/slots.js";

/** The longest page that the stores are asked for. */
const PAGE = 100;

type Page = { locks: RawRecord[]; next: string | null };

/** Reads pages until there are enough locks. Redis may give one twice. */
export async function collect(
  backend: Backend,
  limit: number,
  from: string | undefined,
): Promise<Page> {
  const found = new Map<string, RawRecord>();
  let after = from === undefined ? undefined : decode(from);
  while (found.size < limit) {
    const { locks, next } = await page(backend, after, Math.min(PAGE, limit - found.size));
    for (const lock of locks) found.set(lock.lockId, lock);
    if (next === null) return { locks: grouped(found), next };
    after = next;
  }
  return { locks: grouped(found), next: after === undefined ? null : encode(after) };
}

/** The slots of a key that are in use, by number. How many there can be is not stored, so all locks are looked at. */
export async function slotsInUse(backend: Backend, key: string): Promise<RawRecord[]> {
  const name = key.normalize();
  const { locks } = await collect(backend, Infinity, undefined);
  return locks.filter((lock) => {
    const { key: base, slot } = parted(lock.key);
    return slot !== undefined && base === name;
  });
}

/** The locks in the order in which they were found, but for the slots of a key, which stand where the first of them does. */
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

async function page(backend: Backend, after: string | undefined, limit: number): Promise<Page> {
  const { text: json } = await direct(backend)("", undefined, (store) => store.list(after, limit));
  return JSON.parse(json) as Page;
}

// A cursor may be a key, and those may be anything. Encoded, it can be put on a command line.
const encode = (cursor: string): string => Buffer.from(cursor).toString("base64url");
const decode = (cursor: string): string => Buffer.from(cursor, "base64url").toString();
