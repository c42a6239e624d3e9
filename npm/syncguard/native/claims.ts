/** What is asked of one key, and how that crosses to the addon. */

import type { ClaimSettings } from "./exports.js";

/** What of a key can be asked for: `ClaimKind` of the core. A key and its slots have nothing to do with each other. */
export type ClaimKind =
  /** The key itself, for one holder. */
  | { readonly kind: "exclusive" }
  /** The key, together with all its other readers. */
  | { readonly kind: "shared" }
  /** `take` of so many slots, whichever are free. */
  | { readonly kind: "slots"; readonly slots: number; readonly take: number };

/** What is asked of one key, checked. */
export type CheckedClaim = { readonly key: string } & ClaimKind;

/** A claim as the addon takes it, and as users write it. */
export function settingsOf(claim: CheckedClaim): ClaimSettings {
  const { key } = claim;
  switch (claim.kind) {
    case "exclusive":
      return { key };
    case "shared":
      return { key, mode: "shared" };
    case "slots":
      return { key, slots: claim.slots, take: claim.take };
  }
}
