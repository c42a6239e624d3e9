/** As whom a connection in place of a client logs in: as the client would at that moment. */

import type { Login } from "../native/login.js";
import { askFor } from "../options/login.js";
import { readClient } from "./client-settings.js";
import type { Target } from "./target.js";
import type { PostgresClient } from "./types.js";

/** The function that gives the current login of a client. While it cannot be read, it is the last one. */
export function currentLogin(client: WeakRef<PostgresClient>): () => Promise<Login> {
  let last: Login = {};
  return async () => {
    const target = client.deref();
    const reading = target === undefined ? undefined : readClient(target);
    if (reading !== undefined && "connection" in reading) last = await loginOf(reading);
    return last;
  };
}

/** The login of where a connection leads. */
export async function loginOf({ connection, password }: Target): Promise<Login> {
  const login: Login = {};
  if (connection.user !== undefined) login.user = connection.user;
  if (connection.database !== undefined) login.database = connection.database;
  if (password !== undefined) login.password = await askFor(password);
  else if (connection.password !== undefined) login.password = connection.password;
  return login;
}
