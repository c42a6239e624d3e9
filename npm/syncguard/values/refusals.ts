/** What handles have in place of what only some stores can do, and how they print. */

import { invalid } from "../options/validation.js";

/** `inspect.custom` of Node.js, by its name: the types of the package are read without those of Node.js. */
const INSPECT: unique symbol = Symbol.for("nodejs.util.inspect.custom");

/** Says where it is, which is more than that something is no function. Handles of the stores that can do it have their own. */
export class Refusals {
  async eval(): Promise<never> {
    throw invalid("eval() is for locks in Redis");
  }

  async guard(): Promise<never> {
    throw invalid(
      "guard() is for locks in PostgreSQL and Firestore: docs/guards.md has what others do",
    );
  }

  guardQuery(): never {
    throw invalid("guardQuery() is for locks in PostgreSQL");
  }

  async guardFailed(): Promise<never> {
    throw invalid("guardFailed() is for locks in PostgreSQL");
  }

  /** With the time at which the lock ends, and not the getter that tells it. */
  [INSPECT](): object {
    const members = Object.getOwnPropertyDescriptors(this) as PropertyDescriptorMap;
    const { expiresAtMs } = this as { expiresAtMs?: unknown };
    if (members.expiresAtMs !== undefined) {
      members.expiresAtMs = { value: expiresAtMs, enumerable: true };
    }
    return Object.defineProperties({}, members);
  }
}

// Handles compare and print as the plain objects that results have always been.
Object.defineProperty(Refusals.prototype, "constructor", { value: Object });
