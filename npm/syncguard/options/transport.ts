/** How a backend on a server gets its store: over a connection of its own, or through the client that it was given. */

import type { BackendTransport } from "./backend-transport.js";
import type { Store } from "../native/store.js";
import { tellTransport } from "./debug.js";
import { invalid } from "./validation.js";

/** What a store can do with what a backend was given. */
export type Ways<Client, Options, Settings> = {
  /** The store's name, for people. */
  readonly name: string;
  /** What clients are, for people. */
  readonly clients: string;
  readonly isClient: (value: unknown) => value is Client;
  /** The settings that a URL or options say. */
  readonly readConnection: (options: Options) => Settings;
  /** Those of a client, or the name of the setting that makes an equivalent connection impossible. */
  readonly readClient: (client: Client) => NoInfer<Settings> | { readonly obstacle: string };
  /** Opens the store over a connection of its own, with the settings of `client` if there is one. */
  readonly connect: (settings: Settings, client?: Client) => Store;
  /** Opens the store through the client's own methods. */
  readonly drive: (client: Client) => Store;
};

/**
 * Opens a store on what a backend was given.
 *
 * @param transport - the user's option
 * @throws LockError `InvalidArgument`
 */
export function openOn<Client extends object, Options, Settings extends object>(
  clientOrOptions: Client | Options,
  transport: BackendTransport["way"] | undefined,
  {
    name,
    clients,
    isClient,
    readConnection,
    readClient,
    connect,
    drive,
  }: Ways<Client, Options, Settings>,
): { store: Store; transport: BackendTransport } {
  const native = (by: string, settings: Settings, client?: Client) => ({
    store: connect(settings, client),
    transport: tellTransport(name, "native", `a connection of its own, by ${by}`),
  });
  const through = (client: Client, reason: string) => ({
    store: drive(client),
    transport: tellTransport(name, "client", reason),
  });
  if (!isClient(clientOrOptions)) {
    if (transport === "client") throw invalid(`transport "client" needs ${clients}`);
    return native(GIVEN, readConnection(clientOrOptions));
  }
  if (transport === "client") return through(clientOrOptions, 'transport is "client"');
  const reading = readClient(clientOrOptions);
  if (!("obstacle" in reading))
    return native("the settings read from the client", reading, clientOrOptions);
  const lacks = `cannot take over ${reading.obstacle} of the client`;
  if (transport === "native") throw invalid(`transport "native" ${lacks}`);
  return through(clientOrOptions, `a connection of its own ${lacks}`);
}

export const GIVEN = "the URL or options that were given";
