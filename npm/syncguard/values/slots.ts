/** Names slots, and the locks of those who share a key, as stores do: docs/format.md, "Slots" and "Shared locks". */

import { createHash } from "node:crypto";

/** The character between a key and the number of a slot, or what tells one who shares the key. */
const MARK = "\u037e";

/** The number of a key's gate, which is no slot: slots begin at 1. */
export const GATE = 0;

/** What names a lock. */
type Named = {
  key: string;
  slot: number | null;
  mode?: "shared" | undefined;
  lockId?: string;
};

/** The key of a lock as a store has it. */
export function storedKey({ key, slot, mode, lockId = "" }: Named): string {
  const name = key.normalize();
  if (mode !== undefined) return `${name}${MARK}r${lockId}`;
  return slot === null ? name : `${name}${MARK}${slot}`;
}

/** Takes apart a key as a store has it: the user's key, and the number of the slot, or {@link GATE}. */
export function parted(stored: string): { key: string; slot: number | undefined } {
  const at = stored.lastIndexOf(MARK);
  if (at === -1) return { key: stored, slot: undefined };
  const slot = Number(stored.slice(at + 1));
  return { key: stored.slice(0, at), slot: Number.isNaN(slot) ? undefined : slot };
}

/** The lock id by which stores show what all who share a key have together. It gives nobody a right. */
export function groupOf(key: string): string {
  const digest = createHash("sha256").update(`shared:${key}`).digest();
  return Buffer.concat([Buffer.alloc(1), digest.subarray(0, 15)]).toString("base64url");
}
