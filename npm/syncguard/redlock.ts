/** `syncguard/redlock`: the class of redlock 5. */

import "./native/required.js";

export { ExecutionError, ResourceLockedError } from "./redlock/errors.js";
export { Lock, Redlock, Redlock as default } from "./redlock/redlock.js";
export type {
  Client,
  ClientExecutionResult,
  ExecutionResult,
  ExecutionStats,
  RedlockAbortSignal,
  RedlockSettings,
  Settings,
} from "./redlock/types.js";
