/** What reading clients of every store needs, so that a native connection can stand in for them. */

/**
 * Whether `client.name` is the method that its driver's class has: not one of the object itself, not one of a subclass,
 * and not one that was put into the class later, as test spies and instrumentation do. Who puts another function in its
 * place wants that one to be called.
 *
 * @param companions - other methods that the driver's class has itself and a subclass hardly replaces as well
 */
export function isOwnMethod(client: object, name: string, companions: readonly string[]): boolean {
  const holder = holderOf(client, name);
  if (holder === undefined || holder === client) return false;
  if (!companions.every((companion) => Object.hasOwn(holder, companion))) return false;
  // How a method stands in a class, minified or not; nobody replaces one by another class's of that name.
  const source = sourceOf(holder, name);
  return source.startsWith(`${name}(`) || source.startsWith(`async ${name}(`);
}

/**
 * The same for a method that the driver generates, as it does its companions: their source is the same. Drivers of Redis
 * make their hundreds of commands so.
 */
export function isGeneratedMethod(
  client: object,
  name: string,
  companions: readonly string[],
): boolean {
  const holder = holderOf(client, name);
  if (holder === undefined || holder === client) return false;
  // A spy on each of them would have one source as well, but not in a class with so many.
  if (Object.getOwnPropertyNames(holder).length < 100) return false;
  const source = sourceOf(holder, name);
  return companions.every((companion) => sourceOf(holder, companion) === source);
}

/** The object of the prototype chain that has the property itself. */
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
 * Gives the native connection that stands in for a client: one for each client and its settings. Makes it with `create`
 * if there is none yet.
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

/** Clients are asked for their functions once: that there is one tells settings apart. */
function nameOfFunctions(_name: string, value: unknown): unknown {
  return typeof value === "function" ? "function" : value;
}

/** Whether a client's setting says something. */
export function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}

export function isPositive(value: unknown): value is number {
  return typeof value === "number" && value > 0;
}
