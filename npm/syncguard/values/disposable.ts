/**
 * Defines the symbol of `await using` where it is missing: before Node.js 20.5, and in contexts of `node:vm`, in which Jest
 * loads modules, before Node.js 24. Methods would be named "undefined" there. What TypeScript makes of `await using` looks
 * for it in this place.
 */

if ((Symbol.asyncDispose as symbol | undefined) === undefined) {
  // Writable and configurable, unlike the runtime's own: others may define it without asking.
  Object.defineProperty(Symbol, "asyncDispose", {
    value: Symbol("Symbol.asyncDispose"),
    writable: true,
    configurable: true,
  });
}
