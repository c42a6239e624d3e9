/** Extends locks by their ids. */

import { checkTtl, given, startingSignal } from "../values/arguments.js";
import type { BackendContext } from "./context.js";
import { goneLock } from "../values/mutation.js";
import { monitoredLease } from "../holding/monitored.js";
import { addIds, type Part, partsOf, readIds } from "./parts.js";
import { extensionOf } from "../holding/store-leases.js";
import type { ExtendResult, LockOp, LocksOp } from "../values/types.js";

export async function extend(
  on: BackendContext,
  opts: (LockOp | LocksOp) & { ttlMs: number },
): Promise<ExtendResult> {
  const named: Partial<LockOp & LocksOp> = given(opts);
  let parts: readonly Part[] = [];
  const { ttlMs } = opts;
  try {
    const lockIds = readIds(opts);
    checkTtl(ttlMs);
    const signal = startingSignal(opts);
    on.grants.checkOpen();
    const endMs = on.clock.elapsed() + ttlMs;
    parts = partsOf(lockIds, on.grants);
    const beforeMs = parts.map(({ lease }) => lease.mayEnd(endMs));
    let result: ExtendResult;
    try {
      result = extensionOf(await on.store.extend(lockIds, ttlMs, signal));
    } catch (error) {
      // After any other error, the store may have carried out the extension.
      if ((error as { code?: unknown }).code === "InvalidArgument") {
        for (const [place, part] of parts.entries()) part.lease.refused(beforeMs[place]);
      }
      throw error;
    }
    if (result.ok) {
      for (const part of parts) noteExtended(part, endMs, ttlMs);
    } else {
      const gone = goneLock(result, { lockIds });
      if (gone !== undefined) monitoredLease(gone)?.lostInStore(gone);
    }
    return result;
  } catch (error) {
    throw addIds(error, named, parts);
  }
}

function noteExtended({ lease, lockIds }: Part, endMs: number, ttlMs: number): void {
  const areAll = lease.lockIds.every((lockId) => lockIds.includes(lockId));
  if (areAll) lease.moved(endMs, ttlMs);
  else lease.partlyMoved(endMs, ttlMs);
}
