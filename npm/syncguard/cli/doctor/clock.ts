import { formatDuration } from "../duration.js";
import { type Check, fail, ok, warn } from "./check.js";

/**
 * Judges a clock that differs from the server's by so much.
 *
 * @param decides - whether locks end by this clock, as on Firestore: docs/firestore.md, "Clocks", has the limits
 */
export function judgeClock(skewMs: number, decides: boolean): Check {
  const name = "clock";
  const apart = `${formatDuration(Math.abs(skewMs))} ${skewMs > 0 ? "behind" : "ahead of"} the server's`;
  const message = `this machine's clock is ${apart}`;
  const fix = "synchronise it: chrony, systemd-timesyncd or the provider's own";
  if (decides) {
    if (Math.abs(skewMs) >= 500) return fail(name, message, fix);
    if (Math.abs(skewMs) >= 200) return warn(name, message, fix);
    return ok(name, message);
  }
  // The server's clock decides: only what people compare with their own is affected.
  if (Math.abs(skewMs) >= 5000) return warn(name, message, fix);
  return ok(name, message);
}
