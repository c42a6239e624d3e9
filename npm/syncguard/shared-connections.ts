/** The native connections that stand in for clients: one for each client and its settings. */

/** Gives the connection for a client's settings, and makes it with `create` if there is none yet. */
export function shareConnections<Settings, Connection>(
  create: (settings: Settings) => Connection,
): (client: object, settings: Settings) => Connection {
  const connections = new WeakMap<object, Map<string, Connection>>();
  return (client, settings) => {
    const ofClient = connections.get(client) ?? new Map<string, Connection>();
    connections.set(client, ofClient);
    const name = JSON.stringify(settings, nameOfFunctions);
    const connection = ofClient.get(name) ?? create(settings);
    ofClient.set(name, connection);
    return connection;
  };
}

/** Clients are asked for their functions once: that there is one tells settings apart. */
function nameOfFunctions(_name: string, value: unknown): unknown {
  return typeof value === "function" ? "function" : value;
}
