/** Locks of backends that users write, and of methods that they put in the place of others: these go by ids. */

import { goneLock } from "../values/mutation.js";
import type { ExtendResult, LockOp, ReleaseResult } from "../values/types.js";
import type { Extending, HowToRelease, LeaseOperations, Releasing } from "./internals.js";
import type { Lease } from "./lease.js";

export class UsersLeases implements LeaseOperations {
  constructor(private readonly backend: Releasing & Extending) {}

  async release(lease: Lease, { signal, holdMs }: HowToRelease): Promise<ReleaseResult> {
    const { ids, lockIds } = lease;
    const result = await (holdMs === undefined
      ? // Only backends of this package have granted several.
        this.backend.release((signal === undefined ? ids : { ...ids, signal }) as LockOp)
      : this.endLater(lease, holdMs, signal));
    // Anyone may have written the backend.
    if ((result?.ok as unknown) === false) lease.gone(goneLock(result, ids));
    else if (result?.ok) lease.freed(lockIds);
    return result;
  }

  extend(lease: Lease, ttlMs: number, signal: AbortSignal | undefined): Promise<ExtendResult> {
    return this.backend.extend({ ...(lease.ids as LockOp), ttlMs, signal });
  }

  /** Such a backend can make a lock end by an extension only, and does not tell those who extend it. */
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
