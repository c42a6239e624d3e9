/** Whether clients' methods are their drivers' own: who puts another function in the place of one wants it to be called. */

/**
 * Whether `client.name` is the method that its driver's class has: not one of the object itself, not one of a subclass,
 * and not one that was put into the class later, as test spies and instrumentation do.
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
