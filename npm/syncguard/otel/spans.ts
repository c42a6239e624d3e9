import {
  type Attributes,
  context,
  type Span,
  SpanKind,
  SpanStatusCode,
  trace,
  type Tracer,
} from "@opentelemetry/api";
import type { Observation, Stream, Subject } from "../watching/events.js";
import { callQuietly } from "../watching/reports.js";
import { hashKey } from "../values/values.js";
import type { LockError } from "../native/errors.js";
import { attributesOf, attributesOfBackend, errorOf, operationOf } from "./outcome.js";

/** What the spans of a backend have in common. */
export type SpanSettings = {
  readonly tracer: Tracer;
  readonly backend: string;
  /** Whether spans show `hashKey(key)`. */
  readonly keyHashes: boolean;
};

/**
 * Makes a span of each operation when it has ended, below the span that is active then: of `acquire`, `release`, `extend` and
 * `forceRelease`, and one of the whole waiting of `lock()` in place of its attempts.
 */
export function createSpans({ tracer, backend, keyHashes }: SpanSettings): Stream["tell"] {
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
    addSubject(attributes, seen, keyHashes);
    const span = tracer.startSpan(name, { kind: SpanKind.CLIENT, startTime, attributes });
    const error = errorOf(seen);
    if (error !== undefined) fail(span, error, endMs);
    span.end(endMs);
  };
}

/** A span from the grant to the release of a lock that `lock()` holds, which is active while its function runs. */
export function createHoldSpans(settings: SpanSettings): NonNullable<Stream["runHeld"]> {
  const { tracer, backend, keyHashes } = settings;
  const start = (subject: Subject): Span => {
    const attributes = attributesOfBackend(backend);
    addSubject(attributes, subject, keyHashes);
    return tracer.startSpan("syncguard.hold", { kind: SpanKind.INTERNAL, attributes });
  };
  return async (subject, work, loss) => {
    const span = start(subject);
    try {
      return await context.with(trace.setSpan(context.active(), span), work);
    } finally {
      callQuietly(() => {
        const error = loss();
        span.setAttribute("syncguard.outcome", error === undefined ? "released" : "lost");
        if (error !== undefined) fail(span, error);
        span.end();
      });
    }
  };
}

function addSubject(
  attributes: Attributes,
  { key, keys, claims }: Subject,
  keyHashes: boolean,
): void {
  const count = keys?.length ?? claims;
  if (count !== undefined) attributes["syncguard.claims"] = count;
  if (!keyHashes) return;
  // Callers may pass anything as a key.
  if (typeof key === "string") attributes["syncguard.key.hash"] = hashKey(key);
  if (keys !== undefined) attributes["syncguard.key.hashes"] = keys.map((text) => hashKey(text));
}

function fail(span: Span, { code, message }: LockError, timeMs?: number): void {
  span.recordException({ name: code, message }, timeMs);
  span.setStatus({ code: SpanStatusCode.ERROR, message: code });
}

function nameOf(seen: Observation): string | undefined {
  if (seen.type === "wait") return "syncguard.lock";
  // The attempts of a wait are told of by its span.
  if (seen.type === "acquire" && seen.attempts !== undefined) return undefined;
  const operation = operationOf(seen);
  return operation === undefined ? undefined : `syncguard.${operation}`;
}
