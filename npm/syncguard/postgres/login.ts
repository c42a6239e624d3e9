/** As whom a connection in place of a client logs in: as the client would at that moment. */

import type { PostgresLogin } from "./addon.js";
import { readClient } from "./client-settings.js";
import type { Target } from "./target.js";
import type { PostgresClient } from "./types.js";

/** The function that gives the current login of a client. While it cannot be read, it is the last one. */
export function currentLogin(client: WeakRef<PostgresClient>): () => Promise<PostgresLogin> {
  let last: PostgresLogin = {};
  return async () => {
    const target = client.deref();
    const reading = target === undefined ? undefined : readClient(target);
    if (reading !== undefined && "connection" in reading) last = await loginOf(reading);
    return last;
  };
}

/** The login of where a connection leads. */
export async function loginOf({ connection, password }: Target): Promise<PostgresLogin> {
  const login: PostgresLogin = {};
  if (connection.user !== undefined) login.user = connection.user;
  if (connection.database !== undefined) login.database = connection.database;
  // What is no text is refused, and not taken for none.
  if (password !== undefined) login.password = (await password()) ?? false;
  else if (connection.password !== undefined) login.password = connection.password;
  return login;
}
