import { type MeterProvider, metrics, trace, type TracerProvider } from "@opentelemetry/api";
import { checkBackend } from "../values/arguments.js";
import type { Stream } from "../watching/events.js";
import { internalsOf } from "../holding/internals.js";
import { callQuietly } from "../watching/reports.js";
import { observeBackend } from "../backend/telemetry.js";
import type {
  BackendCapabilities,
  LockBackend,
  LockBackendLike,
  SyncGuardBackend,
} from "../values/types.js";
import { optionNames, refuseUnknown } from "../options/names.js";
import { checkBooleans, checkObject, invalid, withoutNulls } from "../options/validation.js";
import { constants } from "../native/constants.js";
import { createMetrics, SCOPE } from "./metrics.js";
import { createHoldSpans, createSpans } from "./spans.js";

/** Options of `instrument()`. */
export interface InstrumentOptions {
  /** Where metrics go. Default: the global provider at the time of the call. */
  meterProvider?: MeterProvider | undefined;
  /** Where spans go. Default: the global provider. */
  tracerProvider?: TracerProvider | undefined;
  /** Whether spans have `syncguard.key.hash`: `hashKey(key)`, which helps to recognise a key and does not hide it. Default false. */
  keyHashes?: boolean | undefined;
}

const OPTIONS = optionNames(
  "instrument()",
  Object.keys({
    meterProvider: true,
    tracerProvider: true,
    keyHashes: true,
  } satisfies Record<keyof InstrumentOptions, true>),
);

/**
 * A backend that does what `backend` does, and tells OpenTelemetry of it: docs/observability.md lists the metrics and spans.
 * Neither has keys or lock ids, unless `keyHashes` allows hashes on spans.
 *
 * Call it when the providers are there, which an SDK sees to.
 *
 * @throws LockError `InvalidArgument` that names the option
 * @example
 * ```ts
 * import { instrument } from "syncguard/otel";
 * import { createRedisBackend } from "syncguard/redis";
 *
 * const backend = instrument(createRedisBackend("redis://localhost:6379"), { keyHashes: true });
 * ```
 */
export function instrument<C extends BackendCapabilities>(
  backend: SyncGuardBackend<C>,
  options?: InstrumentOptions,
): SyncGuardBackend<C>;
/**
 * A backend that does what yours does, and tells OpenTelemetry of it: docs/observability.md lists the metrics and spans.
 *
 * @throws LockError `InvalidArgument` that names the option
 * @example
 * ```ts
 * import type { LockBackend, LockBackendLike } from "syncguard";
 * import { instrument } from "syncguard/otel";
 *
 * function observed(mine: LockBackendLike): LockBackend {
 *   return instrument(mine);
 * }
 * ```
 */
export function instrument<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  options?: InstrumentOptions,
): LockBackend<C>;
export function instrument<C extends BackendCapabilities>(
  backend: LockBackendLike<C> & Partial<Pick<SyncGuardBackend<C>, "close">>,
  options: InstrumentOptions = {},
): LockBackend<C> {
  checkBackend(backend);
  checkObject(options, "options");
  const instrumentOptions = withoutNulls(options);
  refuseUnknown(instrumentOptions, OPTIONS);
  const { meterProvider, tracerProvider, keyHashes } = instrumentOptions;
  checkBooleans({ keyHashes });
  if (meterProvider !== undefined && typeof meterProvider.getMeter !== "function") {
    throw invalid("meterProvider must be a MeterProvider");
  }
  if (tracerProvider !== undefined && typeof tracerProvider.getTracer !== "function") {
    throw invalid("tracerProvider must be a TracerProvider");
  }

  const name = nameOf(backend);
  const { grants, warnings } = internalsOf(backend) ?? {};
  const provider = meterProvider ?? metrics.getMeterProvider();
  const measured = createMetrics(provider, name, grants, warnings);
  const tracer = (tracerProvider ?? trace.getTracerProvider()).getTracer(SCOPE, constants.version);
  const spans = { tracer, backend: name, keyHashes: keyHashes === true };
  const span = createSpans(spans);
  const stream: Stream = {
    hears: () => true,
    tell(seen) {
      callQuietly(() => measured.tell(seen));
      callQuietly(() => span(seen));
    },
    runHeld: createHoldSpans(spans),
  };
  const observed = observeBackend(backend, stream) as LockBackend<C> &
    Partial<Pick<SyncGuardBackend<C>, "close" | typeof Symbol.asyncDispose>>;
  const { close } = backend;
  if (close !== undefined) {
    const end = async (): Promise<void> => {
      measured.stop();
      await close.call(backend);
    };
    observed.close = end;
    observed[Symbol.asyncDispose] = end;
  }
  return observed;
}

/** The store, as the capabilities of every backend of this package have it. */
function nameOf(backend: LockBackendLike): string {
  const { backend: name } = (backend.capabilities ?? {}) as { backend?: unknown };
  return typeof name === "string" ? name : "custom";
}
