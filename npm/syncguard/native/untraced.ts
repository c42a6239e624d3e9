/** Calls of users' code from the native thread, where no span of theirs is active. */

type Context = { setValue: (key: symbol, value: unknown) => Context };
type ContextManager = {
  active: () => Context;
  with: <Result>(context: Context, run: () => Result) => Result;
};

/** Where `@opentelemetry/api` keeps what an application has registered, whichever copies of it there are. */
const API = Symbol.for("opentelemetry.js.api.1");
/** What tells tracers that no span is wanted: `suppressTracing()` of `@opentelemetry/core`. */
const SUPPRESSED = Symbol.for("OpenTelemetry SDK Context Key SUPPRESS_TRACING");

/** Lets `run` make no spans: each would be a trace of its own, one per heartbeat for as long as a lock is held. */
export function untraced<Result>(run: () => Result): Result {
  const api = (globalThis as { [API]?: { context?: ContextManager } })[API];
  const manager = api?.context;
  if (manager === undefined) return run();
  return manager.with(manager.active().setValue(SUPPRESSED, true), run);
}
