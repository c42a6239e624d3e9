/** The end of a backend: what is still allowed until then. */

import { setImmediate } from "node:timers";
import { LockError } from "../native/errors.js";
import type { Store } from "../native/store.js";
import type { Grants } from "../holding/grants.js";

/** Read when this module is loaded, so that fake timers in users' tests cannot delay closing a backend. */
const afterMicrotasks = setImmediate;

export class Closing {
  private closing: Promise<void> | undefined = undefined;
  private isClosed = false;

  constructor(
    private readonly store: Pick<Store, "close">,
    private readonly grants: Grants,
  ) {}

  /** Throws once nothing may be acquired or extended any more. */
  checkOpen(): void {
    if (this.closing !== undefined) throw closed();
  }

  /** Throws once nothing may be released any more. */
  checkNotClosed(): void {
    if (this.isClosed) throw closed();
  }

  /** Why nobody may wait any more, if so. */
  refusal(): unknown {
    try {
      this.checkOpen();
      this.grants.check();
    } catch (error) {
      return error;
    }
    return undefined;
  }

  close(): Promise<void> {
    return (this.closing ??= this.finish());
  }

  /** Waits until no acquisition can be granted a lock any more. Until then, releases are still allowed. */
  private async finish(): Promise<void> {
    this.grants.refuseWaiters();
    await this.grants.idle();
    // lock() checks its signals once more after an attempt, and then releases by itself. It does so in this turn of the
    // event loop, however many wrappers are in between.
    await new Promise<void>((resolve) => {
      afterMicrotasks(resolve);
    });
    await this.grants.idle();
    this.isClosed = true;
    await this.store.close();
  }
}

/** A race while the process shuts down is no wrong argument, so it is an error of its own. */
function closed(): LockError {
  return new LockError("Aborted", "the backend is closed");
}
