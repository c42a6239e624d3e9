/** The base of handles: methods that refuse what only other stores can do, and the way in which handles print. */

import { invalid } from "../options/validation.js";

/** `inspect.custom` of Node.js. It is named here, because the package's types must do without those of Node.js. */
const INSPECT: unique symbol = Symbol.for("nodejs.util.inspect.custom");

/** Refuses with an error that names the right store, in place of "is not a function". Handles of that store have methods of their own. */
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

  /** Prints the time at which the lock ends, and not the getter that tells it. */
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
