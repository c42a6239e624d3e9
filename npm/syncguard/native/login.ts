/** Logins that may change: the core asks for one before each connection that it makes. */

import { callAddon } from "./addon.js";
import { withClient } from "./operations.js";

/**
 * What the core is told: see `JavaScriptLogin` in crates/syncguard-node/src/login.rs. What is not there is as in the settings,
 * and what is no text is refused.
 */
export type Login = { user?: unknown; password?: unknown; database?: string };

/** Connects with `settings`. If there is a `login`, what that gives takes the place of that in them. */
export function connectAs<Settings extends { loginClient?: number }, Connection extends object>(
  settings: Settings,
  login: (() => Promise<Login>) | undefined,
  connect: (settings: Settings) => Connection,
): Connection {
  if (login === undefined) return callAddon(() => connect(settings));
  return withClient(login, (loginClient) => {
    return callAddon(() => connect({ ...settings, loginClient }));
  });
}
