/** Makes the signal that tells a holder of the loss of its lock. */

import { either, isListenedTo, lookFirst } from "../native/signal.js";

export class LossSignal {
  private readonly controller = new AbortController();
  readonly signal: AbortSignal = this.controller.signal;
  /** Functions that remove our listeners from users' signals. */
  private stops: (() => void)[] = [];

  /** @param look - aborts the signal if the lock is lost at this moment */
  constructor(look: () => void) {
    lookFirst(this.signal, look);
  }

  /** Whether somebody listens for the abort. */
  get isListenedTo(): boolean {
    return isListenedTo(this.signal);
  }

  /** A signal that is aborted with {@link signal} or with `user`, for the reason of the first of them. */
  joinedWith(user: AbortSignal): AbortSignal {
    const { signal, stop } = either(user, this.signal);
    if (stop !== undefined) this.stops.push(stop);
    return signal;
  }

  abort(reason: unknown): void {
    this.controller.abort(reason);
  }

  /** Removes our listeners from users' signals. */
  stopListening(): void {
    for (const stop of this.stops.splice(0)) stop();
  }
}
