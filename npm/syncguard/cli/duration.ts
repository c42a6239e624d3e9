/** Durations as people write them. */

import { usage } from "./exit.js";

const UNITS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** The longest duration: what is longer is a mistake. */
const LONGEST_MS = 365 * 86_400_000;

/**
 * Milliseconds of `1500ms`, `30s`, `5m`, `1.5h` or `2d`. A number without a unit is refused, because it may be meant as
 * seconds or as milliseconds; only 0 needs none.
 *
 * @param option - the option that has it, for errors
 * @throws CliError for anything else
 */
export function readDuration(text: string, option: string): number {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(text);
  if (match === null) {
    if (/^0+$/.test(text)) return 0;
    throw usage(`--${option} must be a number and a unit, such as 1500ms, 30s, 5m, 2h or 1d`);
  }
  const ms = Math.round(Number(match[1]) * (UNITS[match[2] as string] as number));
  if (ms > LONGEST_MS) throw usage(`--${option} must not be longer than 365d`);
  return ms;
}

/** The same for durations that must be longer than nothing. */
export function readPositiveDuration(text: string, option: string): number {
  const ms = readDuration(text, option);
  if (ms === 0) throw usage(`--${option} must be longer than 0`);
  return ms;
}

/** A duration for people: its two largest units. */
export function formatDuration(ms: number): string {
  if (ms < 0) return `-${formatDuration(-ms)}`;
  if (ms < 1000) return `${ms < 10 ? Math.round(ms * 10) / 10 : Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const names = [
    ["d", 86_400_000],
    ["h", 3_600_000],
    ["m", 60_000],
    ["s", 1000],
  ] as const;
  const first = names.findIndex(([, unit]) => ms >= unit);
  let left = ms;
  return names
    .slice(first, first + 2)
    .map(([name, unit]) => {
      const count = Math.floor(left / unit);
      left -= count * unit;
      return `${count} ${name}`;
    })
    .join(" ");
}
