/** Shared by the readers of all clients' settings, with which a native connection can be used in a client's place. */

/**
 * Whether `client.name` is still the driver's own method: not one of the object itself, not one of a subclass, and not one
 * that was put into the class later, as test spies and instrumentation do. Whoever replaced the method wants their function
 * to be called.
 *
 * @param companions - other methods that the driver's class defines and that a subclass is unlikely to replace as well
 */
export function isOwnMethod(client: object, name: string, companions: readonly string[]): boolean {
  const holder = holderOf(client, name);
  if (holder === undefined || holder === client) return false;
  if (!companions.every((companion) => Object.hasOwn(holder, companion))) return false;
  // The source of a method in a class body, minified or not. A replacement is hardly ever such a method of the same name.
  const source = sourceOf(holder, name);
  return source.startsWith(`${name}(`) || source.startsWith(`async ${name}(`);
}

/**
 * The same for a method that the driver has generated together with its companions, so that their sources are equal. Redis
 * drivers generate their hundreds of commands in this way.
 */
export function isGeneratedMethod(
  client: object,
  name: string,
  companions: readonly string[],
): boolean {
  const holder = holderOf(client, name);
  if (holder === undefined || holder === client) return false;
  // Spies on all of them would also have equal sources, but nobody spies on so many methods.
  if (Object.getOwnPropertyNames(holder).length < 100) return false;
  const source = sourceOf(holder, name);
  return companions.every((companion) => sourceOf(holder, companion) === source);
}

/** The object in the prototype chain that has the property as its own. */
function holderOf(client: object, name: string): object | undefined {
  let holder: object | null = client;
  while (holder !== null && !Object.hasOwn(holder, name)) {
    holder = Object.getPrototypeOf(holder) as object | null;
  }
  return holder ?? undefined;
}

function sourceOf(holder: object, name: string): string {
  const value: unknown = Object.getOwnPropertyDescriptor(holder, name)?.value;
  return typeof value === "function" ? Function.prototype.toString.call(value) : "";
}

/**
 * The native connection used in place of a client: one for each client and settings. It is made with `create` if there is
 * none yet.
 */
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

/** Two settings count as equal if both have a function in the same place: those of one client are the same function. */
function nameOfFunctions(_name: string, value: unknown): unknown {
  return typeof value === "function" ? "function" : value;
}

/** Whether a client's setting has a value. */
export function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}

/** A number, also one written as text, as clients take it; NaN for what is neither. */
export function toNumber(value: unknown): number {
  return typeof value === "number" || typeof value === "string" ? Number(value) : NaN;
}

export function isPositive(value: unknown): value is number {
  return typeof value === "number" && value > 0;
}
