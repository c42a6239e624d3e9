/** Reads what is asked for: one key, several at once, or slots. */

import type { ClaimSettings } from "../native/exports.js";
import { constants } from "../native/constants.js";
import { addContext, LockError } from "../native/errors.js";
import { checkObject, invalid } from "../options/validation.js";
import { optionNames, refuseUnknown } from "../options/names.js";
import type { Claim } from "./types.js";
import { normalizeAndValidateKey } from "./values.js";

const { maxClaims, maxSlots } = constants;
const CLAIM_OPTIONS = optionNames("a claim", ["key", "slots", "take"]);

/** What an acquisition is to lock. */
export type LockTarget = {
  /** The key. For several, the first. */
  readonly key: string;
  /** The claims, checked. Absent for a single key without slots, which `acquire()` checks. */
  readonly claims?: ClaimSettings[];
  /** Whether several locks are asked for, and not one lock or one slot. */
  readonly isSet?: boolean;
};

/** All forms in which users can ask for locks. */
export type Wanted = string | Claim | readonly (string | Claim)[];

/** What may stand beside a key among the options, in the place of a claim. */
export type BesideKey = { readonly slots?: number | undefined; readonly take?: number | undefined };

/** Their names. */
export const BESIDE_KEY = ["slots", "take"];

/** Whether some of them are given; `null` counts as not given. */
export function isBesideKey({ slots, take }: BesideKey): boolean {
  return (slots ?? take ?? undefined) !== undefined;
}

/**
 * Reads what is to be locked: a key and what stands beside it, a claim, or several.
 *
 * @throws LockError `InvalidArgument`
 */
export function readTarget(wanted: Wanted, beside: BesideKey = NOTHING): LockTarget {
  if (!isBesideKey(beside)) return readWanted(wanted);
  const { slots, take } = beside;
  if ((take ?? undefined) !== undefined) {
    throw invalid("take belongs into a claim: { key, slots, take }");
  }
  if (!isName(wanted)) throw invalid("slots belongs into the claim: { key, slots }");
  return readWanted({ key: wanted, slots });
}

const NOTHING: BesideKey = {};

function readWanted(wanted: Wanted): LockTarget {
  if (isName(wanted)) return { key: wanted };
  if (!Array.isArray(wanted)) {
    const claim = readClaim(wanted as Claim);
    if (claim.slots === undefined) return { key: claim.key };
    const isSet = claim.take !== undefined;
    return { key: claim.key, claims: [claim], isSet };
  }
  /** By their names: a key that is there twice, such as both accounts of a transfer, is one key. */
  const named = new Map<string, ClaimSettings>();
  let count = 0;
  for (const keyOrClaim of wanted as readonly (string | Claim)[]) {
    const claim = readClaim(isName(keyOrClaim) ? { key: keyOrClaim } : keyOrClaim);
    const name = normalizeAndValidateKey(claim.key);
    const before = named.get(name);
    if (before === undefined) {
      named.set(name, claim);
      count += claim.take ?? 1;
    } else if (before.slots !== undefined || claim.slots !== undefined) {
      throw invalid("keys must not contain a key twice where slots of it are asked for");
    }
  }
  const claims = [...named.values()];
  if (claims.length === 0) throw invalid("keys must not be empty");
  if (count > maxClaims) {
    throw invalid(
      `keys must not ask for more than ${maxClaims} locks at once: lock what contains them, such as their customer, by a key of its own`,
    );
  }
  return { key: claims[0]?.key ?? "", claims, isSet: true };
}

/** Whether a value is to be checked as a key. Bytes are, so that the error says so: they would also pass as a claim, whose members are numbers. */
function isName(wanted: unknown): wanted is string {
  return typeof wanted !== "object" || wanted === null || ArrayBuffer.isView(wanted);
}

function readClaim(claim: Claim): ClaimSettings {
  checkObject(claim, "a claim");
  refuseUnknown(claim, CLAIM_OPTIONS);
  const { key } = claim;
  const [slots, take] = [claim.slots ?? undefined, claim.take ?? undefined];
  normalizeAndValidateKey(key);
  const settings: ClaimSettings = { key };
  if (slots === undefined) {
    if (take !== undefined) throw invalid("take needs slots");
    return settings;
  }
  checkCount(slots, "slots", maxSlots);
  settings.slots = slots;
  if (take !== undefined) {
    checkCount(take, "take", maxClaims);
    if (take > slots) throw invalid("take must not be larger than slots");
    settings.take = take;
  }
  return settings;
}

function checkCount(count: unknown, name: string, max: number): asserts count is number {
  if (!Number.isInteger(count) || (count as number) < 1 || (count as number) > max) {
    throw invalid(`${name} must be a whole number from 1 to ${max}`);
  }
}

/** Adds the keys to an error: the one that stood in the way, or else the first, and all of them if there are several. */
export function addTarget(error: unknown, target: LockTarget): unknown {
  const { key, claims, isSet } = target;
  const keys = isSet === true ? claims?.map((claim) => claim.key) : undefined;
  if (error instanceof LockError && error.context?.key !== undefined) {
    error.context.key = claims === undefined ? key : givenKey(target, error.context.key);
  }
  return addContext(error, key, undefined, keys && { keys });
}

/** A key as the user gave it, for one in NFC. */
export function givenKey({ claims }: LockTarget, key: string | undefined): string | undefined {
  return claims?.find((claim) => claim.key.normalize() === key)?.key ?? key;
}

/** The keys that nobody else can lock meanwhile. Those of slots are not among them. */
export function exclusiveKeys({ key, claims }: LockTarget): readonly string[] {
  return claims?.flatMap((claim) => (claim.slots === undefined ? [claim.key] : [])) ?? [key];
}
