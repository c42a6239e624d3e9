/** Which way a backend takes to its server, and why. */
export interface BackendTransport {
  /**
   * - `"native"`: over connections of this package. Waiters hear of releases, and locks are extended also while the event loop
   *   is blocked.
   * - `"client"`: through the methods of your client. Waiters poll, and a blocked event loop stops extensions.
   */
  readonly way: "native" | "client";
  /** Why, for people. It names settings and shows no values. */
  readonly reason: string;
}
