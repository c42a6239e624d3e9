/** Releases and extends locks by their ids, by means of users' own backends and of methods that users have replaced. */

import { goneLock } from "../values/mutation.js";
import type { ExtendResult, LockOp, ReleaseResult } from "../values/types.js";
import type { Extending, HowToRelease, LeaseOperations, Releasing } from "./internals.js";
import type { Lease } from "./lease.js";

export class UsersLeases implements LeaseOperations {
  constructor(private readonly backend: Releasing & Extending) {}

  async release(lease: Lease, { signal, holdMs }: HowToRelease): Promise<ReleaseResult> {
    const { ids, lockIds } = lease;
    const result = await (holdMs === undefined
      ? // Only backends of this package grant several locks, and these know `lockIds`.
        this.backend.release((signal === undefined ? ids : { ...ids, signal }) as LockOp)
      : this.endLater(lease, holdMs, signal));
    // A user may have written the backend, so the result may be anything.
    if ((result?.ok as unknown) === false) lease.gone(goneLock(result, ids));
    else if (result?.ok) lease.freed(lockIds);
    return result;
  }

  extend(lease: Lease, ttlMs: number, signal: AbortSignal | undefined): Promise<ExtendResult> {
    return this.backend.extend({ ...(lease.ids as LockOp), ttlMs, signal });
  }

  /** Makes a lock end later than now. Such a backend can do that by an extension only, and does not tell the lock's heartbeats. */
  private async endLater(
    lease: Lease,
    holdMs: number,
    signal: AbortSignal | undefined,
  ): Promise<ReleaseResult> {
    lease.stopHeartbeats(lease.lockIds);
    const ended = await this.extend(lease, holdMs, signal);
    return ended.ok ? { ok: true } : ended;
  }
}
