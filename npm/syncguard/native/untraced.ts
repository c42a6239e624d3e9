/** Calls users' code for the native thread, where no span of theirs is active. */

type Context = { setValue: (key: symbol, value: unknown) => Context };
type ContextManager = {
  active: () => Context;
  with: <Result>(context: Context, run: () => Result) => Result;
};

/** Under this symbol, all copies of `@opentelemetry/api` keep what an application has registered. */
const API = Symbol.for("opentelemetry.js.api.1");
/** The key by which `suppressTracing()` of `@opentelemetry/core` tells tracers to make no span. */
const SUPPRESSED = Symbol.for("OpenTelemetry SDK Context Key SUPPRESS_TRACING");

/** Calls `run` so that it makes no spans. Each would be a trace of its own, one for every heartbeat of a lock. */
export function untraced<Result>(run: () => Result): Result {
  const api = (globalThis as { [API]?: { context?: ContextManager } })[API];
  const manager = api?.context;
  if (manager === undefined) return run();
  return manager.with(manager.active().setValue(SUPPRESSED, true), run);
}
