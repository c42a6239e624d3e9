import { type Attributes, SpanKind, SpanStatusCode, type Tracer } from "@opentelemetry/api";
import type { Observation, Observer } from "../lock/observation.js";
import { hashKey } from "../lock/values.js";
import { attributesOf, errorOf } from "./outcome.js";

/**
 * Makes a span of each operation when it has ended, below the span that is active then: of `acquire`, `release` and `extend`, and
 * one of the whole waiting of `lock()` in place of its attempts.
 */
export function createSpans(tracer: Tracer, backend: string, keyHashes: boolean): Observer {
  return (seen) => {
    const name = nameOf(seen);
    if (name === undefined) return;
    const endMs = performance.timeOrigin + performance.now();
    const startTime = endMs - (seen.durationMs ?? seen.waitMs ?? 0);
    const attributes: Attributes = attributesOf(seen, backend);
    if (seen.type === "wait") {
      attributes["syncguard.attempts"] = seen.attempts;
      attributes["syncguard.wakeups"] = seen.wakeups;
    }
    if (seen.heldMs !== undefined) attributes["syncguard.hold.seconds"] = seen.heldMs / 1_000;
    if (keyHashes && typeof seen.key === "string") {
      attributes["syncguard.key.hash"] = hashKey(seen.key);
    }
    const span = tracer.startSpan(name, { kind: SpanKind.CLIENT, startTime, attributes });
    const error = errorOf(seen);
    if (error !== undefined) {
      span.recordException({ name: error.code, message: error.message }, endMs);
      span.setStatus({ code: SpanStatusCode.ERROR, message: error.code });
    }
    span.end(endMs);
  };
}

function nameOf({ type, attempts }: Observation): string | undefined {
  switch (type) {
    case "wait":
      return "syncguard.lock";
    case "acquire":
      return attempts === undefined ? "syncguard.acquire" : undefined;
    case "release":
    case "extend":
      return `syncguard.${type}`;
    default:
      return undefined;
  }
}
