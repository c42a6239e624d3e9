/** Milliseconds of a clock that all processes of the machine share, and that nobody can set. */
export function nowMs() {
  return Number(process.hrtime.bigint()) / 1e6;
}
