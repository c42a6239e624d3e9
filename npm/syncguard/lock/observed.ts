/** What handles tell telemetry, hidden from users. */

import { Handle, type HeldReport } from "./held.js";
import type { LockBackend, LockOp } from "./types.js";

type Reporting = { readonly "syncguard.held"?: HeldReport };

const observed = new WeakSet();

/** Notes that a backend reports what it is asked. */
export function markObserved<Backend extends object>(backend: Backend): Backend {
  observed.add(backend);
  return backend;
}

/** Whether a backend reports what it is asked. */
export function isObserved(backend: object): boolean {
  return observed.has(backend);
}

/** The arguments of a release. For telemetry they say how the lock was held; other backends see what they always have. */
export function releaseArguments(
  backend: Pick<LockBackend, "release">,
  args: LockOp,
  held: object | undefined,
): LockOp {
  if (held === undefined || !observed.has(backend)) return args;
  const report = Handle.report(held);
  return Object.defineProperty(args, "syncguard.held", { value: report });
}

/** How the lock was held that is to be released, if its handle has told. */
export function heldReport(args: LockOp): HeldReport | undefined {
  return (args as Reporting)["syncguard.held"];
}
