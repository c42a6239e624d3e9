// Pairs of acquire and release, as many as there can be.

import { readFileSync } from "node:fs";

/**
 * Runs `pair(index)` for `durationMs`, `inFlight` at a time. Resolves to pairs per second, microseconds per pair of
 * the whole process's CPU, of the main thread's CPU and of its event loop not waiting, and the median and the 99th
 * percentile of a pair's time.
 */
export async function load(pair, inFlight, durationMs) {
  const times = [];
  const cpu = process.cpuUsage();
  const mainCpu = mainThreadCpu();
  const utilization = performance.eventLoopUtilization();
  const start = performance.now();
  const end = start + durationMs;
  await Promise.all(
    Array.from({ length: inFlight }, async (_, index) => {
      for (let before = performance.now(); before < end;) {
        await pair(index);
        const after = performance.now();
        times.push(after - before);
        before = after;
      }
    }),
  );
  const pairs = times.length;
  const seconds = (performance.now() - start) / 1_000;
  const { active } = performance.eventLoopUtilization(utilization);
  const { user, system } = process.cpuUsage(cpu);
  times.sort((a, b) => a - b);
  return {
    rate: pairs / seconds,
    cpu: (user + system) / pairs,
    mainCpu: (mainThreadCpu() - mainCpu) / pairs,
    mainBusy: (active * 1_000) / pairs,
    p50: times[pairs >> 1] * 1_000,
    p99: times[Math.floor(pairs * 0.99)] * 1_000,
  };
}

/** Microseconds of CPU that the main thread has used since its start; NaN where the system does not tell. */
export function mainThreadCpu() {
  try {
    // Linux: nanoseconds on the CPU come first; the main thread's id is the process's.
    const path = `/proc/${process.pid}/task/${process.pid}/schedstat`;
    return Number(readFileSync(path, "utf8").split(" ")[0]) / 1_000;
  } catch {
    return Number.NaN;
  }
}
