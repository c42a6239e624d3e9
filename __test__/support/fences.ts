/**
 * Whether a fence was taken from this machine's clock not long ago, as the first one of a key is. The clock of ioredis-mock may be
 * ahead of it by less than a second.
 */
export function isFromTheClock(fence: unknown): boolean {
  if (typeof fence !== "string" || !/^\d{15}$/.test(fence)) return false;
  const ageMs = Date.now() - Number(fence);
  return ageMs > -1_000 && ageMs < 60_000;
}

/** The fence that a library gives which counts, after this one. */
export function next(fence: string): string {
  return String(Number(fence) + 1).padStart(15, "0");
}
