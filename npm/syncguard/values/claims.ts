/** Reads what is asked for: one key, alone or shared, several at once, or slots. */

import { type CheckedClaim, type ClaimKind, settingsOf } from "../native/claims.js";
import { constants } from "../native/constants.js";
import { addContext, LockError } from "../native/errors.js";
import { checkObject, invalid } from "../options/validation.js";
import { namesOf, optionNames, refuseUnknown } from "../options/names.js";
import type { Claim } from "./types.js";
import { normalizeAndValidateKey } from "./values.js";

const { maxClaims, maxSlots } = constants;

/** For each kind of claim, whether a key that is there twice is one key. TypeScript wants a line for each. */
const IS_ONE_IF_TWICE: Record<ClaimKind["kind"], boolean> = {
  exclusive: true,
  shared: true,
  slots: false,
};

/** What an acquisition is to lock. */
export type LockTarget = {
  /** The key. For several, the first. */
  readonly key: string;
  /** The claims, checked. Absent for the exclusive lock on a single key, which `acquire()` checks. */
  readonly claims?: readonly CheckedClaim[];
  /** Whether several locks are asked for, and not one lock or one slot. */
  readonly isSet?: boolean;
};

/** All forms in which users can ask for locks. */
export type Wanted = string | Claim | readonly (string | Claim)[];

/** What may stand beside a key among the options, in the place of a claim. */
export type BesideKey = { readonly [Name in Exclude<keyof Claim, "key">]?: Claim[Name] };

/** The names of what may stand beside a key. */
export const BESIDE_KEY = namesOf<BesideKey>({ mode: true, slots: true, take: true });
const CLAIM_OPTIONS = optionNames("a claim", ["key", ...BESIDE_KEY]);

/** Whether anything is given beside the key; `null` counts as not given. */
export function isBesideKey({ mode, slots, take }: BesideKey): boolean {
  return (mode ?? slots ?? take ?? undefined) !== undefined;
}

/**
 * Reads what is to be locked: a key and what stands beside it, a claim, or several.
 *
 * @throws LockError `InvalidArgument`
 */
export function readTarget(wanted: Wanted, beside: BesideKey = NOTHING): LockTarget {
  if (!isBesideKey(beside)) return readWanted(wanted);
  const { mode, slots, take } = beside;
  if ((take ?? undefined) !== undefined) {
    throw invalid("take belongs into a claim: { key, slots, take }");
  }
  if (!isName(wanted)) {
    const name = (slots ?? undefined) === undefined ? "mode" : "slots";
    throw invalid(`${name} belongs into the claim: { key, ${name} }`);
  }
  return readWanted({ key: wanted, mode, slots });
}

const NOTHING: BesideKey = {};

function readWanted(wanted: Wanted): LockTarget {
  if (isName(wanted)) return { key: wanted };
  if (!Array.isArray(wanted)) {
    const { take } = wanted as Claim;
    const claim = readClaim(wanted as Claim);
    if (claim.kind === "exclusive") return { key: claim.key };
    return { key: claim.key, claims: [claim], isSet: (take ?? undefined) !== undefined };
  }
  /** The claims by their keys: a key that is there twice, such as both accounts of a transfer, is one key. */
  const named = new Map<string, CheckedClaim>();
  let count = 0;
  for (const keyOrClaim of wanted as readonly (string | Claim)[]) {
    const claim = readClaim(isName(keyOrClaim) ? { key: keyOrClaim } : keyOrClaim);
    const name = normalizeAndValidateKey(claim.key);
    const before = named.get(name);
    if (before === undefined) {
      named.set(name, claim);
      count += claim.kind === "slots" ? claim.take : 1;
    } else checkSame(before, claim);
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

/** Checks that two claims of one key can count as one. */
function checkSame(before: ClaimKind, claim: ClaimKind): void {
  if (!IS_ONE_IF_TWICE[before.kind] || !IS_ONE_IF_TWICE[claim.kind]) {
    throw invalid("keys must not contain a key twice where slots of it are asked for");
  }
  if (before.kind !== claim.kind) throw invalid(BOTH_MODES);
}

/** Whether a value is to be checked as a key. Bytes are, so that the error says so: they would also pass as a claim, whose members are numbers. */
function isName(wanted: unknown): wanted is string {
  return typeof wanted !== "object" || wanted === null || ArrayBuffer.isView(wanted);
}

function readClaim(claim: Claim): CheckedClaim {
  checkObject(claim, "a claim");
  refuseUnknown(claim, CLAIM_OPTIONS);
  const { key } = claim;
  normalizeAndValidateKey(key);
  return { key, ...readKind(claim) };
}

function readKind(claim: BesideKey): ClaimKind {
  const [slots, take] = [claim.slots ?? undefined, claim.take ?? undefined];
  const mode = claim.mode ?? "exclusive";
  if (mode !== "shared" && mode !== "exclusive") {
    throw invalid('mode must be "shared" or "exclusive"');
  }
  if (slots === undefined) {
    if (take !== undefined) throw invalid("take needs slots");
    return { kind: mode };
  }
  if (mode === "shared") throw invalid("mode cannot be given beside slots, which are not shared");
  checkCount(slots, "slots", maxSlots);
  if (take === undefined) return { kind: "slots", slots, take: 1 };
  checkCount(take, "take", maxClaims);
  if (take > slots) throw invalid("take must not be larger than slots");
  return { kind: "slots", slots, take };
}

const BOTH_MODES =
  'keys must not contain a key both with mode "shared" and without: a shared lock cannot become an exclusive one; release it and ask for that';

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

/** What is to be locked, as `acquire()` takes it. */
export function argumentsOfTarget({ key, claims, isSet }: LockTarget) {
  const given = claims?.map(settingsOf);
  if (isSet === true) return { key: undefined, claims: given };
  return { key, ...given?.[0], take: undefined };
}

/** The claims of a target, with the one on a single key. */
export function claimsOf({ key, claims }: LockTarget): readonly CheckedClaim[] {
  return claims ?? [{ key, kind: "exclusive" }];
}

/** Whether two claims can never be granted beside each other. Slots are granted until none is free. */
export function excludes(one: CheckedClaim, other: CheckedClaim): boolean {
  if (one.key !== other.key || one.kind === "slots" || other.kind === "slots") return false;
  return one.kind === "exclusive" || other.kind === "exclusive";
}
