/** What handles tell telemetry, hidden from users. */

import { Handle, type HeldReport } from "./held.js";
import { ifKnown } from "./known.js";
import type { LockBackend, LockOp } from "./types.js";

/** Says how a lock was held. To be called with whether its release has found it gone. */
type Report = (isGone: boolean) => HeldReport | undefined;
type Reporting = { readonly "syncguard.held"?: Report };

/** The arguments of a release. For telemetry they can say how the lock was held; other backends see what they always have. */
export function releaseArguments(
  backend: Pick<LockBackend, "release">,
  args: LockOp,
  held: object | undefined,
): LockOp {
  if (held === undefined || ifKnown(backend)?.reports !== true) return args;
  const before = Handle.report(held);
  const report: Report = (isGone) => {
    if (isGone && Handle.is(held)) Handle.gone(held);
    return before && { ...before, ...Handle.lossOf(held) };
  };
  return Object.defineProperty(args, "syncguard.held", { value: report });
}

/** How the lock was held whose release has ended, if its handle has told. */
export function heldReport(args: LockOp, isGone: boolean): HeldReport | undefined {
  return (args as Reporting)["syncguard.held"]?.(isGone);
}
