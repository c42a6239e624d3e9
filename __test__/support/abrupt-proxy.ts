/** A way to a server on which connections end while the thread of the test is busy. */

import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { onTestFinished } from "vitest";

/** Passes everything on to a server's port, on a thread of its own. What it is told is done when the method returns. */
export async function startAbruptProxy(port: number) {
  const shared = new SharedArrayBuffer(4);
  const steps = new Int32Array(shared);
  const program = new URL("../redis/fixtures/abrupt-proxy.mjs", import.meta.url);
  const worker = new Worker(program, { workerData: { port, shared } });
  onTestFinished(async () => {
    await worker.terminate();
  });
  const [own] = (await once(worker, "message")) as [number];
  const after = (act: () => void): void => {
    const before = Atomics.load(steps, 0);
    act();
    if (Atomics.wait(steps, 0, before, 20_000) === "timed-out") throw new Error("nothing was done");
  };
  const tell = (order: string, how?: string): void => {
    after(() => {
      worker.postMessage({ order, how });
    });
  };
  return {
    port: own,
    /** Makes a call whose answer comes with a reset behind it, while this thread does nothing else. */
    answerAndReset: <T>(call: () => T): T => {
      tell("arm");
      let result: T | undefined;
      after(() => {
        result = call();
      });
      return result as T;
    },
    /** Ends all connections. */
    end: (how: "destroy" | "resetAndDestroy"): void => {
      tell("end", how);
    },
  };
}
