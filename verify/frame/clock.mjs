// Clocks that are wrong.

import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";

/**
 * The environment of a process whose clock is ahead; its timers go right. Not by the program `faketime`: that names a semaphore by the
 * number of its process, and fails where a process of the same number was killed.
 */
export function wrongClock(aheadMs) {
  const library = readdirSync("/usr/lib")
    .map((folder) => join("/usr/lib", folder, "faketime/libfaketimeMT.so.1"))
    .find((path) => existsSync(path));
  if (library === undefined)
    throw new Error("libfaketime is missing: install the package faketime");
  const seconds = aheadMs / 1000;
  return {
    LD_PRELOAD: library,
    FAKETIME: `${seconds < 0 ? "" : "+"}${seconds}s`,
    DONT_FAKE_MONOTONIC: "1",
  };
}
