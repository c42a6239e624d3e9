/** Names slots as stores do: docs/format.md, "Slots". */

/** The character between a key and the number of a slot. */
const SLOT_MARK = "\u037e";

/** The key of a lock as a store has it. */
export function storedKey({ key, slot }: { key: string; slot: number | null }): string {
  const name = key.normalize();
  return slot === null ? name : `${name}${SLOT_MARK}${slot}`;
}

/** Takes apart a key as a store has it: the user's key, and the number of the slot. */
export function parted(stored: string): { key: string; slot: number | undefined } {
  const at = stored.lastIndexOf(SLOT_MARK);
  if (at === -1) return { key: stored, slot: undefined };
  return { key: stored.slice(0, at), slot: Number(stored.slice(at + 1)) };
}
