/** What `doctor` finds. */

/** Facts of a store by name, as the addon gives them. What could not be found out is missing. */
export type Facts = Readonly<Record<string, string | number | boolean | undefined>>;

export type Check = {
  /** What was looked at. */
  name: string;
  /** `fail`: locks do not work, or may not hold. `warn`: they do, with less than there could be. */
  status: "ok" | "warn" | "fail";
  message: string;
  /** What to do about it. */
  fix?: string;
};

export function ok(name: string, message: string): Check {
  return { name, status: "ok", message };
}

export function warn(name: string, message: string, fix: string): Check {
  return { name, status: "warn", message, fix };
}

export function fail(name: string, message: string, fix: string): Check {
  return { name, status: "fail", message, fix };
}
