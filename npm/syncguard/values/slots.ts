/** How stores name slots: docs/format.md, "Slots". */

/** Stands between a key and the number of a slot. */
const SLOT_MARK = "\u037e";

/** What a store has as the key of a lock. */
export function storedKey({ key, slot }: { key: string; slot: number | null }): string {
  const name = key.normalize();
  return slot === null ? name : `${name}${SLOT_MARK}${slot}`;
}

/** The key and the number of the slot, of what a store has as a key. */
export function parted(stored: string): { key: string; slot: number | undefined } {
  const at = stored.lastIndexOf(SLOT_MARK);
  if (at === -1) return { key: stored, slot: undefined };
  return { key: stored.slice(0, at), slot: Number(stored.slice(at + 1)) };
}
