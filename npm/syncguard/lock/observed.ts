/** What handles tell telemetry, hidden from users. */

import { Handle, type HeldReport } from "./held.js";
import { ifKnown } from "./known.js";
import type { LockBackend, LockOp } from "./types.js";

type Reporting = { readonly "syncguard.held"?: HeldReport };

/** The arguments of a release. For telemetry they say how the lock was held; other backends see what they always have. */
export function releaseArguments(
  backend: Pick<LockBackend, "release">,
  args: LockOp,
  held: object | undefined,
): LockOp {
  if (held === undefined || ifKnown(backend)?.reports !== true) return args;
  const report = Handle.report(held);
  return Object.defineProperty(args, "syncguard.held", { value: report });
}

/** How the lock was held that is to be released, if its handle has told. */
export function heldReport(args: LockOp): HeldReport | undefined {
  return (args as Reporting)["syncguard.held"];
}
