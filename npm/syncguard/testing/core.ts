/** The core's pure functions in TypeScript, for processes without the addon. The tests compare them with the addon's. */

import { randomBytes } from "node:crypto";
import { constants } from "../native/constants.js";
import { type Core, replace } from "../native/provided.js";
import { checkText, lockIdText, wrongLockId } from "../native/text.js";
import { invalid } from "../options/validation.js";

const MAX_TTL_MS = 315_576_000_000_000;
const MAX_OWNER_BYTES = 255;
const { maxKeyLengthBytes, lockIdLength, fenceDigits, fenceWarn } = constants;
const LOCK_ID = new RegExp(`^[\\w-]{${lockIdLength}}$`);

export const core: Core = {
  normalizeAndValidateKey(key) {
    checkText(key, "Key");
    if (key === "") throw invalid("Key must not be empty");
    const text = key.normalize();
    if (Buffer.byteLength(text) > maxKeyLengthBytes) {
      throw invalid(`Key exceeds maximum length of ${maxKeyLengthBytes} bytes after normalization`);
    }
    return text;
  },
  validateLockId(lockId: unknown) {
    const text = lockIdText(lockId);
    if (LOCK_ID.test(text)) return;
    if (text === "") throw wrongLockId("empty/null");
    const { length } = Array.from(text);
    const others = length === lockIdLength ? " with other characters" : "";
    throw wrongLockId(`a string of length ${length}${others}`);
  },
  validateTtl(ttlMs: unknown) {
    if (!Number.isInteger(ttlMs) || (ttlMs as number) < 1) {
      throw invalid("ttlMs must be a positive integer");
    }
    if ((ttlMs as number) > MAX_TTL_MS) throw invalid(`ttlMs must not exceed ${MAX_TTL_MS}`);
  },
  validateOwner(owner) {
    checkText(owner, "owner");
    if (owner === "") throw invalid("owner must not be empty");
    if (Buffer.byteLength(owner) > MAX_OWNER_BYTES) {
      throw invalid(`owner exceeds maximum length of ${MAX_OWNER_BYTES} bytes`);
    }
  },
  generateLockId: () => randomBytes(16).toString("base64url"),
  hashKey(value) {
    const sums = new Uint32Array(3);
    const text = value.normalize();
    for (let at = 0; at < text.length; at += 1) {
      const unit = text.charCodeAt(at);
      for (const [index, [shift, factor]] of STEPS.entries()) {
        const sum = sums[index] as number;
        sums[index] = (sum << shift) - sum + factor * unit;
      }
    }
    return [...sums].map((sum) => sum.toString(16).padStart(8, "0")).join("");
  },
  formatFence(decimal) {
    if (decimal.startsWith("-")) throw invalid("Fence must be non-negative");
    if (!/^\d+$/.test(decimal)) throw invalid("Fence must be a whole number");
    const digits = decimal.replace(/^0+/, "");
    if (digits.length > fenceDigits) {
      throw invalid(`Fence exceeds ${fenceDigits}-digit limit: ${digits}`);
    }
    return digits.padStart(fenceDigits, "0");
  },
  isFenceNearLimit: (fence) => fence > fenceWarn,
};

/** The shift and the factor of each sum of the hash. */
const STEPS = [
  [5, 1],
  [7, 3],
  [11, 7],
] as const;

replace(core);
