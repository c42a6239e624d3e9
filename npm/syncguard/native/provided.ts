/** The core's pure functions, whoever provides them: the addon, or `syncguard/testing` in a process without it. */

import type { core as ofAddon } from "./core.js";

/** Those that waiting for a lock and holding it need. */
export type Core = Omit<typeof ofAddon, "makeStorageKey" | "isLive" | "redisServerTimeMs">;

export const core = {} as Core;

/** Whether somebody has provided them. */
export function isProvided(): boolean {
  return "hashKey" in core;
}

/** Provides the functions. Those of the addon take the place of others. */
export function provide(functions: Core): void {
  Object.assign(core, functions);
}
