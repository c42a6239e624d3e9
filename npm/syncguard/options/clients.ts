/** Shared by the readers of all clients' settings, with which a native connection can be used in a client's place. */

import { types } from "node:util";

/**
 * What keeps a client from being carried over: it is not exactly what its class makes, so that what its own methods would
 * do is not known. `undefined` for a client that is.
 */
export function changeOf(client: object): string | undefined {
  for (let at: object | null = client; at !== null; at = prototypeOf(at)) {
    if (types.isProxy(at)) return "the calls, which go through a Proxy,";
  }
  const { objects, methods } = partsOf(client);
  for (const object of objects) {
    for (const [name, own] of Object.entries(Object.getOwnPropertyDescriptors(object))) {
      const inherited = methods === null ? undefined : methodOf(methods, name);
      if (typeof inherited !== "function") continue;
      if (observed(own.value) !== observed(inherited)) return `${name}, which is not its class's,`;
    }
  }
  return undefined;
}

/** The client and what it inherits from up to its class, and the class's methods. */
function partsOf(client: object): { objects: object[]; methods: object | null } {
  const objects: object[] = [];
  let at: object | null = client;
  // node-redis gives out objects that inherit from the client.
  for (; at !== null && !Object.hasOwn(at, "constructor"); at = prototypeOf(at)) objects.push(at);
  return { objects, methods: at };
}

/**
 * Whether a method is still the driver's own: not one of a subclass, and not one that was put into the class later, as test
 * spies do. Whoever replaced the method wants their function to be called. Tracing agents only watch: see {@link observed}.
 *
 * @param client - one for which {@link changeOf} has found nothing, or a prototype of such clients
 * @param companions - other methods that the driver's class defines and that a subclass is unlikely to replace as well
 */
export function isOwnMethod(client: object, name: string, companions: readonly string[]): boolean {
  const holder = holderOf(client, name);
  if (holder === undefined) return false;
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
  while (holder !== null && !Object.hasOwn(holder, name)) holder = prototypeOf(holder);
  return holder ?? undefined;
}

/** What stands under that name in the prototype chain, without calling a getter. */
function methodOf(client: object, name: string): unknown {
  const holder = holderOf(client, name);
  return holder && Object.getOwnPropertyDescriptor(holder, name)?.value;
}

function sourceOf(holder: object, name: string): string {
  return sourceOfFunction(methodOf(holder, name));
}

/** The text of a function, or of that which it observes. */
export function sourceOfFunction(fn: unknown): string {
  const value = observed(fn);
  return typeof value === "function" ? Function.prototype.toString.call(value) : "";
}

type Wrapper = { __original?: unknown; __wrapped?: unknown };

/**
 * The function beneath the wrappers of tracing agents, which watch calls and change nothing. OpenTelemetry's and those of
 * the package shimmer keep it as `__original`; Datadog's inherit from it.
 */
function observed(fn: unknown): unknown {
  let value = fn;
  for (let wrappers = 0; wrappers < MOST_WRAPPERS && typeof value === "function"; wrappers += 1) {
    const { __original: original, __wrapped: isWrapped } = value as Wrapper;
    const isMarked = Object.hasOwn(value, "__original") && isWrapped === true;
    const beneath = isMarked ? original : prototypeOf(value);
    // What all functions inherit from is a function, too, and inherits from none.
    if (
      typeof beneath !== "function" ||
      (!isMarked && typeof prototypeOf(beneath) !== "function")
    ) {
      break;
    }
    value = beneath;
  }
  return value;
}

const MOST_WRAPPERS = 16;

function prototypeOf(object: object): object | null {
  return Object.getPrototypeOf(object) as object | null;
}

/**
 * The native connection used in place of a client: one for each client and settings. It is made with `create` if there is
 * none yet. What `create` keeps of the client must not keep it alive: the connections live as long as the client.
 */
export function shareConnections<Client extends object, Settings, Connection>(
  create: (settings: Settings, client: WeakRef<Client>) => Connection,
): (client: Client, settings: Settings) => Connection {
  const connections = new WeakMap<Client, Map<string, Connection>>();
  return (client, settings) => {
    const ofClient = connections.get(client) ?? new Map<string, Connection>();
    connections.set(client, ofClient);
    const name = JSON.stringify(settings, nameOfFunctions);
    const connection = ofClient.get(name) ?? create(settings, new WeakRef(client));
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
