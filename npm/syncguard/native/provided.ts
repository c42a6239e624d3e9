/** The core's pure functions, whoever provides them: the addon, or `syncguard/testing`, which works where there is none. */

import type { core as ofAddon } from "./core.js";

/** Those that waiting for a lock and holding it need. */
export type Core = Omit<typeof ofAddon, "makeStorageKey" | "isLive" | "redisServerTimeMs">;

export const core = {} as Core;

/** Provides the addon's functions, unless others are there: these need no addon, and give the same answers. */
export function provide(functions: Core): void {
  if (!("hashKey" in core)) replace(functions);
}

/** Provides functions that take the place of the addon's. */
export function replace(functions: Core): void {
  Object.assign(core, functions);
}
