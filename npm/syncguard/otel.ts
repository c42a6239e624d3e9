/** `syncguard/otel`: metrics and spans, for applications with OpenTelemetry. Needs `@opentelemetry/api`. */

export { instrument, type InstrumentOptions } from "./otel/instrument.js";
