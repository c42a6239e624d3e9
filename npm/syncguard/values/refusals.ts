/** What handles have in place of what only some stores can do. */

import { invalid } from "../options/validation.js";

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
}

// Handles compare and print as the plain objects that results have always been.
Object.defineProperty(Refusals.prototype, "constructor", { value: Object });
