/** The signal that tells a holder of the loss of its lock. */

import { either, isListenedTo, lookFirst } from "../native/signal.js";

export class LossSignal {
  private readonly controller = new AbortController();
  readonly signal: AbortSignal = this.controller.signal;
  /** Remove the listeners from signals of users. */
  private stops: (() => void)[] = [];

  /** @param look - aborts it, if the lock is lost at this moment */
  constructor(look: () => void) {
    lookFirst(this.signal, look);
  }

  /** Whether somebody waits for its abort. */
  get isListenedTo(): boolean {
    return isListenedTo(this.signal);
  }

  /** The signal that is also aborted with `user`, for its reason. */
  joinedWith(user: AbortSignal): AbortSignal {
    const { signal, stop } = either(user, this.signal);
    if (stop !== undefined) this.stops.push(stop);
    return signal;
  }

  abort(reason: unknown): void {
    this.controller.abort(reason);
  }

  /** Listens to signals of users no more. */
  stopListening(): void {
    for (const stop of this.stops.splice(0)) stop();
  }
}
