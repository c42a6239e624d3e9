/**
 * Defines `Symbol.asyncDispose` where it is missing: before Node.js 20.5, and before Node.js 24 in contexts of `node:vm`, in which Jest
 * loads modules. Without it, methods would be named "undefined". The code that TypeScript makes of `await using` looks for it here, too.
 */

if ((Symbol.asyncDispose as symbol | undefined) === undefined) {
  // It is writable and configurable, unlike the runtime's own, because other libraries may define it without asking.
  Object.defineProperty(Symbol, "asyncDispose", {
    value: Symbol("Symbol.asyncDispose"),
    writable: true,
    configurable: true,
  });
}
