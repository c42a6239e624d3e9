/** Metrics and spans, as OpenTelemetry's own SDK exports them. */

import { AsyncLocalStorage } from "node:async_hooks";
import { readFileSync } from "node:fs";
import {
  type Context,
  context,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
} from "@opentelemetry/api";
import { PrometheusSerializer } from "@opentelemetry/exporter-prometheus";
import {
  AggregationTemporality,
  type DataPoint,
  type Histogram,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from "@opentelemetry/sdk-trace-base";
import { Redis } from "ioredis";
import { describe, expect, onTestFinished, test } from "vitest";
import { hashKey, lock, type SyncGuardBackend } from "syncguard";
import { instrument, type InstrumentOptions } from "syncguard/otel";
import { createRedisBackend } from "syncguard/redis";
import { createSqliteBackend } from "syncguard/sqlite";
import { createTestBackend, TestClock } from "syncguard/testing";
import { lockError, thrownLockError } from "../support/errors";
import { fakeBackend } from "../support/fake-backend";
import { startRedis } from "../support/redis";
import { until } from "../support/until";

const KEY = "account:4711";
const { version } = JSON.parse(
  readFileSync(new URL("../../package.json", import.meta.url), "utf8"),
) as { version: string };

/** What an application with the SDK has, with exporters that keep everything. */
function sdk(temporality = AggregationTemporality.CUMULATIVE) {
  const exporter = new InMemoryMetricExporter(temporality);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 2 ** 30 });
  const meterProvider = new MeterProvider({ readers: [reader] });
  const spanExporter = new InMemorySpanExporter();
  const tracerProvider = new BasicTracerProvider({
    spanProcessors: [new SimpleSpanProcessor(spanExporter)],
  });
  onTestFinished(async () => {
    await meterProvider.shutdown();
    await tracerProvider.shutdown();
  });
  const collect = async () => {
    exporter.reset();
    await reader.forceFlush();
    const [resource] = exporter.getMetrics();
    const all = resource?.scopeMetrics.flatMap(({ metrics }) => metrics) ?? [];
    return { resource, all };
  };
  /** The points of a metric: its attributes, and how much of it there is. */
  const points = async (name: string) => {
    const { all } = await collect();
    const data = all.filter(({ descriptor }) => descriptor.name === name);
    return data.flatMap(({ dataPoints }) =>
      (dataPoints as DataPoint<number | Histogram>[]).map(({ attributes, value }) => ({
        ...attributes,
        count: typeof value === "number" ? value : value.count,
        sum: typeof value === "number" ? undefined : value.sum,
      })),
    );
  };
  const options: InstrumentOptions = { meterProvider, tracerProvider };
  return { options, collect, points, tracerProvider, spans: () => spanExporter.getFinishedSpans() };
}

/** The context manager that the SDK for Node brings along, as far as spans need it. */
function followContexts(): void {
  const storage = new AsyncLocalStorage<Context>();
  context.setGlobalContextManager({
    active: () => storage.getStore() ?? ROOT_CONTEXT,
    with: (active, run, self, ...args) => storage.run(active, () => run.apply(self as never, args)),
    bind: (_, target) => target,
    enable: () => context as never,
    disable: () => context as never,
  });
  onTestFinished(() => context.disable());
}

/** The attributes of a backend. */
const of = (backend: string) => ({
  "syncguard.backend": backend,
  ...(backend === "sqlite" ? { "db.system.name": "sqlite" } : {}),
});

const outcome = (backend: string, name: string) => ({ ...of(backend), "syncguard.outcome": name });

/** The points of one operation. */
const operations = async (points: (name: string) => Promise<object[]>, operation: string) =>
  (await points("syncguard.operation.duration")).filter((point) =>
    Object.entries(point).some(
      ([key, value]) => key === "syncguard.operation" && value === operation,
    ),
  ) as Awaited<ReturnType<ReturnType<typeof sdk>["points"]>>;

describe.each(["sqlite", "test"])("on a backend of %s", (name) => {
  const open = (): SyncGuardBackend =>
    name === "sqlite" ? createSqliteBackend() : createTestBackend();

  test("operations are counted by backend and outcome", async () => {
    const { options, points, collect } = sdk();
    const backend = instrument(open(), options);
    const held = await backend.lock(KEY, { ttlMs: 60_000 });
    await backend.acquire({ key: KEY, ttlMs: 60_000 });
    await lockError(backend.lock(KEY, { acquisition: { timeoutMs: 30 } }));
    await lockError(backend.lock(KEY, { signal: AbortSignal.timeout(20) }));
    await lockError(backend.acquire({ key: "", ttlMs: 1 }));
    expect(await points("syncguard.locks")).toEqual([{ ...of(name), count: 1 }]);
    await held.extend(60_000);
    await held.release();
    await backend.extend({ lockId: held.lockId, ttlMs: 1_000 });

    const acquired = await operations(points, "acquire");
    expect(acquired).toContainEqual(expect.objectContaining({ ...outcome(name, "ok"), count: 1 }));
    expect(acquired).toContainEqual(
      expect.objectContaining({ ...outcome(name, "error"), "error.type": "InvalidArgument" }),
    );
    const locked = acquired.find((point) => (Object.values(point) as unknown[]).includes("locked"));
    // The attempts of those who wait are counted, and not measured.
    expect(locked?.count).toBe(1);
    const [contention] = await points("syncguard.contention");
    expect(contention?.count).toBeGreaterThanOrEqual(3);
    expect(await operations(points, "release")).toMatchObject([outcome(name, "ok")]);
    expect(await operations(points, "extend")).toMatchObject([
      { ...outcome(name, "ok"), count: 1 },
      { ...outcome(name, "not-found"), count: 1 },
    ]);
    const waits = await points("syncguard.wait.duration");
    expect(waits).toMatchObject([
      outcome(name, "ok"),
      { ...outcome(name, "timeout"), "error.type": "AcquisitionTimeout" },
      { ...outcome(name, "aborted"), "error.type": "Aborted" },
    ]);
    // In seconds.
    expect(waits[1]?.sum).toBeGreaterThanOrEqual(0.025);
    expect(waits[1]?.sum).toBeLessThan(20);
    expect(await points("syncguard.hold.duration")).toMatchObject([outcome(name, "released")]);
    expect(await points("syncguard.locks")).toMatchObject([{ count: 0 }]);
    const { resource, all } = await collect();
    expect(resource?.scopeMetrics.map(({ scope }) => scope)).toMatchObject([
      { name: "syncguard", version },
    ]);
    expect(JSON.stringify(all)).not.toMatch(new RegExp(`4711|${hashKey(KEY)}|${held.lockId}`));
    await backend.lock(KEY, { ttlMs: 60_000 });
    expect(await points("syncguard.locks")).toMatchObject([{ count: 1 }]);
    // A closed backend is not looked at any more.
    await backend.close();
    expect(await points("syncguard.locks")).toMatchObject([{ count: 0 }]);
  });

  test("a lock that is lost is counted once, with the time that it was held", async () => {
    const { options, points } = sdk();
    const inner = open();
    const backend = instrument(inner, options);
    const held = await backend.lock(KEY, { ttlMs: 60_000 });
    expect(held.signal.aborted).toBe(false);
    await backend.releaseAll();
    await held.release();
    expect(await points("syncguard.losses")).toEqual([{ ...of(name), count: 1 }]);
    expect(await points("syncguard.hold.duration")).toMatchObject([
      { ...outcome(name, "lost"), count: 1 },
    ]);
    expect(await points("syncguard.locks")).toMatchObject([{ count: 0 }]);
    await backend.close();
  });

  test("spans are below the one that is active, and have no keys", async () => {
    const { options, spans, tracerProvider } = sdk();
    const backend = instrument(open(), options);
    await lock(backend, ({ extend }) => extend(60_000), { key: KEY });
    await backend.acquire({ key: KEY, ttlMs: 60_000 });
    await lockError(backend.lock(KEY, { acquisition: { maxRetries: 0 } }));
    await lockError(backend.release({ lockId: "none" }));
    expect(spans().map((span) => span.name)).toEqual([
      ...["syncguard.lock", "syncguard.extend", "syncguard.release", "syncguard.hold"],
      ...["syncguard.acquire", "syncguard.lock", "syncguard.release"],
    ]);
    const [first, , release, hold, , failed, refused] = spans();
    expect(hold).toMatchObject({
      kind: SpanKind.INTERNAL,
      attributes: outcome(name, "released"),
      instrumentationScope: { name: "syncguard", version },
    });
    expect(first?.attributes).toEqual({
      ...outcome(name, "ok"),
      "syncguard.attempts": 1,
      "syncguard.wakeups": 0,
    });
    expect(release?.attributes["syncguard.hold.seconds"]).toBeGreaterThan(0);
    expect(failed?.status).toEqual({ code: SpanStatusCode.ERROR, message: "AcquisitionTimeout" });
    expect(failed?.events[0]?.attributes).toMatchObject({ "exception.type": "AcquisitionTimeout" });
    expect(refused?.attributes["error.type"]).toBe("InvalidArgument");
    for (const span of spans()) {
      expect(JSON.stringify([span.attributes, span.events])).not.toMatch(/4711/);
      expect(span.endTime[0] + span.endTime[1] / 1e9).toBeCloseTo(Date.now() / 1_000, -1);
    }
    followContexts();
    const parent = tracerProvider.getTracer("app").startSpan("job");
    await context.with(trace.setSpan(ROOT_CONTEXT, parent), async () => {
      await backend.isLocked({ key: KEY });
      await backend.acquire({ key: KEY, ttlMs: 60_000 });
    });
    expect(spans().at(-1)?.parentSpanContext?.spanId).toBe(parent.spanContext().spanId);
    await backend.close();
  });

  test("the work of lock() is below the span of the holding, and that below the caller's", async () => {
    const { options, spans, tracerProvider } = sdk();
    followContexts();
    const backend = instrument(open(), options);
    const tracer = tracerProvider.getTracer("app");
    const job = tracer.startSpan("job");
    const result = await context.with(trace.setSpan(ROOT_CONTEXT, job), () =>
      lock(
        backend,
        async ({ extend }) => {
          await new Promise((resolve) => setImmediate(resolve));
          tracer.startSpan("query").end();
          await extend(60_000);
          return 42;
        },
        { key: KEY },
      ),
    );
    expect(result).toBe(42);
    const idOf = (span: string) =>
      spans()
        .find((one) => one.name === span)
        ?.spanContext().spanId;
    const above = (span: string) =>
      spans().find((one) => one.name === span)?.parentSpanContext?.spanId;
    const hold = idOf("syncguard.hold");
    expect(hold).toBeDefined();
    expect(["query", "syncguard.extend", "syncguard.release"].map(above)).toEqual([
      hold,
      hold,
      hold,
    ]);
    for (const span of ["syncguard.hold", "syncguard.lock"]) {
      expect(above(span)).toBe(job.spanContext().spanId);
    }
    // What the work throws is its own, and a lock that is lost is an error of the holding.
    const failure = new Error("work");
    const lost = lock(
      backend,
      async ({ signal }) => {
        expect(signal.aborted).toBe(false);
        await backend.releaseAll();
        throw failure;
      },
      { key: KEY },
    );
    await expect(lost).rejects.toBe(failure);
    const last = spans()
      .filter((one) => one.name === "syncguard.hold")
      .at(-1);
    expect(last?.attributes).toEqual(outcome(name, "lost"));
    expect(last?.status).toEqual({ code: SpanStatusCode.ERROR, message: "LockLost" });
    await backend.close();
  });

  test("a forced release is an operation, too", async () => {
    const { options, points, spans } = sdk();
    const backend = instrument(open(), options);
    await backend.acquire({ key: KEY, ttlMs: 60_000 });
    await backend.forceRelease(KEY);
    await backend.forceRelease(KEY);
    await lockError(backend.forceRelease(""));
    expect(await operations(points, "force_release")).toMatchObject([
      { ...outcome(name, "ok"), count: 1 },
      { ...outcome(name, "not-found"), count: 1 },
      { ...outcome(name, "error"), count: 1, "error.type": "InvalidArgument" },
    ]);
    const forced = spans().filter((span) => span.name === "syncguard.force_release");
    expect(forced.map(({ status }) => status.code)).toEqual([
      SpanStatusCode.UNSET,
      SpanStatusCode.UNSET,
      SpanStatusCode.ERROR,
    ]);
    await backend.close();
  });

  test("the locks of several backends are counted together, whatever the temporality", async () => {
    for (const temporality of [AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA]) {
      const { options, points } = sdk(temporality);
      const [one, two] = [instrument(open(), options), instrument(open(), options)];
      let before = 0;
      /** How many are held, which with deltas is what has changed. */
      const held = async () => {
        const found = await points("syncguard.locks");
        expect(found).toEqual([{ ...of(name), count: expect.any(Number) as number }]);
        const count = found[0]?.count ?? NaN;
        before = temporality === AggregationTemporality.DELTA ? before + count : count;
        return before;
      };
      const first = await one.lock("a");
      expect(await held()).toBe(1);
      const second = await two.lock("b");
      await one.lock("c");
      expect(await held()).toBe(3);
      await second.release();
      expect(await held()).toBe(2);
      await two.close();
      expect(await held()).toBe(2);
      await first.release();
      expect(await held()).toBe(1);
      await one.close();
      expect(await held()).toBe(0);
    }
  });
});

test("heartbeats are counted, and keys are hashed if that is wanted", async () => {
  const { options, points, spans } = sdk();
  const clock = new TestClock();
  const backend = instrument(createTestBackend({ clock }), { ...options, keyHashes: true });
  const held = await backend.lock(KEY, { ttlMs: 30_000, autoExtend: true });
  await clock.advance(65_000);
  await held.release();
  expect(await points("syncguard.heartbeats")).toMatchObject([{ count: 6 }]);
  expect(await points("syncguard.hold.duration")).toMatchObject([{ sum: 65 }]);
  expect(spans()[0]?.attributes["syncguard.key.hash"]).toBe(hashKey(KEY));
});

test("a waiter whose time is over before its turn is counted", async () => {
  const { options, points } = sdk();
  const clock = new TestClock();
  const backend = instrument(createTestBackend({ clock }), options);
  await backend.acquire({ key: KEY, ttlMs: 600_000 });
  const patient = { timeoutMs: 60_000, maxRetries: 1_000 };
  const first = lockError(backend.lock(KEY, { acquisition: patient }));
  const second = lockError(backend.lock(KEY, { acquisition: { timeoutMs: 3_000 } }));
  await clock.advance(3_000);
  await second;
  expect(await points("syncguard.wait.duration")).toMatchObject([
    { ...outcome("test", "timeout"), count: 1, sum: 3 },
  ]);
  await clock.advance(57_000);
  await first;
});

test("a backend of the user's own, and no providers at all", async () => {
  const { options, points } = sdk();
  const own = instrument(fakeBackend(), options);
  expect(await lock(own, () => "done", { key: KEY })).toBe("done");
  expect(await operations(points, "acquire")).toMatchObject([outcome("custom", "ok")]);
  expect(await points("syncguard.locks")).toEqual([]);
  expect(await lock(instrument(createSqliteBackend()), () => "done", { key: KEY })).toBe("done");
});

test("refuses options that make no sense", () => {
  for (const wrong of [
    { meterProvider: {} },
    { tracerProvider: 1 },
    { keyHashes: "yes" },
    { keys: true },
  ]) {
    const error = thrownLockError(() => instrument(createTestBackend(), wrong as never));
    expect(error.code).toBe("InvalidArgument");
  }
});

test("the dashboard asks for what Prometheus gets", async () => {
  const { options, collect } = sdk();
  const clock = new TestClock();
  const test = createTestBackend({ clock });
  const backend = instrument(test, options);
  const held = await backend.lock(KEY, { ttlMs: 30_000, autoExtend: true });
  await backend.acquire({ key: KEY, ttlMs: 1_000 });
  await held.extend(30_000);
  await clock.advance(20_000);
  test.faults.lose(KEY);
  await held.release();
  await lockError(
    backend.isLocked({ key: KEY }).then(() => backend.acquire({ key: "", ttlMs: 1 })),
  );
  const { resource } = await collect();
  if (resource === undefined) throw new Error("there are no metrics");
  // eslint-disable-next-line @typescript-eslint/no-unsafe-enum-assignment -- one enum, declared twice by the SDK
  const exported = new PrometheusSerializer().serialize(resource);
  const plain = [...exported.matchAll(/^(syncguard_\w+)(?:\{|\s)/gm)].map(([, name = ""]) => name);
  // This exporter leaves the unit out of names; the Collector and Prometheus itself put it in.
  const united = plain.map((name) => name.replace("_duration_", "_duration_seconds_"));
  const labels = new Set([...exported.matchAll(/[{,](\w+)="/g)].map(([, name]) => name as string));

  const file = new URL("../../docs/grafana/syncguard.json", import.meta.url);
  const dashboard = JSON.parse(readFileSync(file, "utf8")) as {
    panels: { title: string; targets?: { expr: string }[] }[];
    templating: { list: { query?: { query?: string } | string }[] };
  };
  const queries = dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
  queries.push(...dashboard.templating.list.map(({ query }) => JSON.stringify(query)));
  const asked = queries
    .flatMap(
      (query) =>
        query.match(/syncguard_(?!(?:backend|outcome|operation)\b)\w+(\(_seconds\)\?\w+)?/g) ?? [],
    )
    .map((name) => new RegExp(`^${name}$`));
  expect(asked.length).toBeGreaterThan(12);
  for (const names of [plain, united]) {
    expect(asked.filter((name) => !names.some((one) => name.test(one)))).toEqual([]);
  }
  // Nothing that is exported is missing on it.
  const bare = (name: string): string => name.replace(/_(bucket|count|sum)$/, "");
  const isShown = (name: string): boolean =>
    ["", "_bucket", "_count"].some((end) => asked.some((one) => one.test(bare(name) + end)));
  expect(united.filter((name) => !isShown(name))).toEqual([]);
  const grouped = queries.flatMap((query) =>
    [...query.matchAll(/by \(([^)]*)\)/g)].flatMap(([, list = ""]) => list.split(/, */)),
  );
  expect(grouped.length).toBeGreaterThan(5);
  expect(grouped.filter((label) => label !== "le" && !labels.has(label))).toEqual([]);
});

test("several keys, and slots", async () => {
  const { options, points, spans } = sdk();
  const clock = new TestClock();
  const backend = instrument(createTestBackend({ clock }), { ...options, keyHashes: true });
  const of = { "syncguard.backend": "test" };
  expect(await points("syncguard.slots")).toEqual([]);
  const held = await backend.lock(["a", "b", { key: "slots", slots: 5 }]);
  const permit = await backend.lock({ key: "slots", slots: 5 });
  expect(await points("syncguard.locks")).toMatchObject([{ ...of, count: 4 }]);
  expect(await points("syncguard.slots")).toMatchObject([{ ...of, count: 2 }]);
  await held.extend(60_000);
  await held.release();
  await permit.release();
  expect(await points("syncguard.locks")).toMatchObject([{ ...of, count: 0 }]);
  expect(await points("syncguard.slots")).toMatchObject([{ ...of, count: 0 }]);
  await lock(backend, () => undefined, { key: ["a", "b"] });
  const hashes = ["a", "b"].map((key) => hashKey(key));
  const named = spans().map(({ name, attributes }) => ({
    name,
    claims: attributes["syncguard.claims"],
    hash: attributes["syncguard.key.hash"],
    hashes: attributes["syncguard.key.hashes"],
  }));
  const three = { claims: 3, hash: undefined, hashes: [...hashes, hashKey("slots")] };
  const one = { claims: undefined, hashes: undefined };
  const two = { claims: 2, hash: undefined, hashes };
  expect(named).toEqual([
    { name: "syncguard.lock", ...three },
    { name: "syncguard.lock", ...one, hash: hashKey("slots") },
    { name: "syncguard.extend", claims: 3, hash: undefined, hashes: undefined },
    { name: "syncguard.release", ...three },
    { name: "syncguard.release", ...one, hash: undefined },
    { name: "syncguard.lock", ...two },
    { name: "syncguard.release", ...two },
    { name: "syncguard.hold", ...two },
  ]);
});

test("a driven client makes no spans for what locks ask of it", async () => {
  followContexts();
  const { options, spans, tracerProvider } = sdk();
  const server = await startRedis();
  onTestFinished(server.stop);
  const tracer = tracerProvider.getTracer("of the client");
  let calls = 0;
  /** As instrumentations make it: a span of each command, which begins a trace where none is active. */
  class Instrumented extends Redis {
    override sendCommand(...args: Parameters<Redis["sendCommand"]>): unknown {
      calls += 1;
      tracer.startSpan("command").end();
      return super.sendCommand(...args);
    }
  }
  const client = new Instrumented(server.port);
  onTestFinished(() => client.disconnect());
  await client.ping();
  const own = spans().filter(({ name }) => name === "command").length;
  expect(own).toBeGreaterThan(0);
  const backend = instrument(createRedisBackend(client, { transport: "client" }), options);
  const held = await backend.lock(KEY, { ttlMs: 1_500, autoExtend: true });
  const granted = calls;
  await until(() => calls > granted + 2);
  await held.release();
  expect(
    spans()
      .map(({ name }) => name)
      .slice(own),
  ).toEqual(["syncguard.lock", "syncguard.release"]);
  await client.ping();
  expect(spans().at(-1)?.name).toBe("command");
});
