import { inspect } from "node:util";

/** Whether a promise is rejected already, without waiting for anything. */
export function isRejected(promise: Promise<unknown>): boolean {
  return inspect(promise, { depth: 0 }).includes("<rejected>");
}
