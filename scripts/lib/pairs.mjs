// Acquire and release, as often as it goes.

import { readFileSync } from "node:fs";

/**
 * Runs acquire+release pairs for `durationMs`, `inFlight` of them at a time, each on a key of its own.
 * Resolves to `{ pairsPerSecond, mainCpuMicros, mainBusyMicros }`: the main thread's CPU time, and the
 * time that its event loop was not idle, per pair.
 */
export async function measurePairs(backend, inFlight, durationMs) {
  let pairs = 0;
  const cpu = mainThreadCpu();
  const utilization = performance.eventLoopUtilization();
  const start = performance.now();
  const end = start + durationMs;
  await Promise.all(
    Array.from({ length: inFlight }, async (_, index) => {
      const key = `figure:${index}`;
      while (performance.now() < end) {
        const result = await backend.acquire({ key, ttlMs: 30_000 });
        if (!result.ok) throw new Error("nobody else can hold this lock");
        await backend.release({ lockId: result.lockId });
        pairs += 1;
      }
    }),
  );
  const seconds = (performance.now() - start) / 1000;
  const { active } = performance.eventLoopUtilization(utilization);
  return {
    pairsPerSecond: pairs / seconds,
    mainCpuMicros: (mainThreadCpu() - cpu) / pairs,
    mainBusyMicros: (active * 1000) / pairs,
  };
}

/** Microseconds of CPU that the main thread has used; NaN where the system does not tell. */
function mainThreadCpu() {
  if (process.threadCpuUsage) {
    const { user, system } = process.threadCpuUsage();
    return user + system;
  }
  try {
    // Linux: nanoseconds on the CPU come first; the main thread's id is the process's.
    const path = `/proc/${process.pid}/task/${process.pid}/schedstat`;
    return Number(readFileSync(path, "utf8").split(" ")[0]) / 1000;
  } catch {
    return Number.NaN;
  }
}
