/** Lets the core ask for a login before each connection that it makes, because logins may change. */

import { callAddon } from "./addon.js";
import { withClient } from "./operations.js";

/**
 * The answer to the core, which `JavaScriptLogin` of the binding reads. A member that is missing stays as it is in the settings. One
 * that is no text is refused.
 */
export type Login = { user?: unknown; password?: unknown; database?: string };

/** Connects with `settings`. The answers of `login`, if there is one, take the place of the login in them. */
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
