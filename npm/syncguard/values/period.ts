/** Periods that are named by a date, as ISO 8601 writes it. */

const PERIOD =
  /^(\d{4})-(?:W(\d\d)|(\d\d)(?:-(\d\d)(?:([T ])(\d\d):(\d\d)((?::\d\d(?:\.\d+)?)?)(Z|[+-]\d\d(?::?\d\d)?)?)?)?)$/;
const COMPACT = /^(\d{4})(\d\d)(\d\d)$/;
const MILLISECONDS = /^\d{13}$/;

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;

/** What a name says of its period. */
export type Period = {
  /** When the period begins, in milliseconds since the Unix epoch. A time without an offset counts as UTC. */
  readonly startMs: number;
  /** Whether the name has a time of day without a time zone. */
  readonly isLocal: boolean;
  /** The name. One with an offset is written in UTC, because only then names sort as their moments do. */
  readonly name: string;
};

/** The period that a text names; `undefined` if it does not read as a date. */
export function periodOf(text: string): Period | undefined {
  const at = (startMs: number, isLocal = false, name = text): Period | undefined =>
    startMs >= 0 ? { startMs, isLocal, name } : undefined;
  if (MILLISECONDS.test(text)) return at(Number(text));
  const [, year, month, day] = COMPACT.exec(text) ?? [];
  if (year !== undefined) return at(startOfDay(year, month, day));
  const found = PERIOD.exec(text);
  if (found === null) return undefined;
  const [, ofYear = "", week, ofMonth, ofDay, between, hour, minute, seconds, offset] = found;
  if (week !== undefined) return at(startOfWeek(ofYear, Number(week)));
  const startMs = startOfDay(ofYear, ofMonth, ofDay);
  if (hour === undefined) return at(startMs);
  if (Number(hour) > 23 || Number(minute) > 59) return undefined;
  const timeMs = startMs + (Number(hour) * 60 + Number(minute)) * MINUTE_MS;
  if (offset === undefined || offset === "Z") return at(timeMs, offset === undefined);
  const utcMs = timeMs - minutesOf(offset) * MINUTE_MS;
  if (!(utcMs >= 0)) return undefined;
  const utc = new Date(utcMs).toISOString();
  return at(utcMs, false, `${utc.slice(0, 10)}${between}${utc.slice(11, 16)}${seconds}Z`);
}

/** Whether a period begins more than a day after `nowMs`. Then one of the clocks is wrong, or somebody has mistyped the period. */
export function isFarAhead(due: string, nowMs: number): boolean {
  const period = periodOf(due);
  return period !== undefined && period.startMs > nowMs + DAY_MS;
}

/** When a day begins; NaN if there is no such day. */
function startOfDay(year: string, month = "", day = "01"): number {
  const isDay = Number(month) >= 1 && Number(month) <= 12 && Number(day) >= 1 && Number(day) <= 31;
  return isDay ? Date.UTC(Number(year), Number(month) - 1, Number(day)) : NaN;
}

/** When a week of ISO 8601 begins. The first week of a year is the one with the 4th of January. */
function startOfWeek(year: string, week: number): number {
  if (week < 1 || week > 53) return NaN;
  const fourth = Date.UTC(Number(year), 0, 4);
  const sinceMonday = (new Date(fourth).getUTCDay() + 6) % 7;
  return fourth + ((week - 1) * 7 - sinceMonday) * DAY_MS;
}

function minutesOf(offset: string): number {
  const minutes = Number(offset.slice(1, 3)) * 60 + Number(offset.slice(3).replace(":", ""));
  return offset.startsWith("-") ? -minutes : minutes;
}
