/** What the package's instrumentation has counted. */

import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import { onTestFinished } from "vitest";

/** A provider for `instrument()`, and what its metric of that name has counted so far; `undefined` for nothing. */
export function startMeter(name: string) {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 2 ** 30 });
  const meterProvider = new MeterProvider({ readers: [reader] });
  onTestFinished(async () => await meterProvider.shutdown());
  const counted = async () => {
    exporter.reset();
    await reader.forceFlush();
    const all = exporter.getMetrics().flatMap(({ scopeMetrics }) => scopeMetrics);
    const found = all
      .flatMap(({ metrics }) => metrics)
      .find(({ descriptor }) => descriptor.name === name);
    return found?.dataPoints.map(({ attributes, value }) => ({ ...attributes, value }));
  };
  return { meterProvider, counted };
}
