/** Options of a login. */

import { invalid } from "./validation.js";

/** What a function of a login gives. What is no text is refused later, and not taken for none. */
export async function askFor(part: () => unknown): Promise<unknown> {
  return (await part()) ?? false;
}

/** @throws LockError `InvalidArgument` that names the option */
export function readLoginOption(value: unknown, name: string): string | (() => unknown) {
  if (typeof value === "string") return value;
  if (typeof value === "function") return () => (value as () => unknown)();
  throw invalid(`${name} must be a string or a function`);
}
