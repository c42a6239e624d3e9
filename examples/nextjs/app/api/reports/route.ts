// Makes a report, unless somebody is making it.

import { setTimeout as sleep } from "node:timers/promises";
import { lock, LockError } from "syncguard";

// Native code needs Node.js: the edge runtime cannot load it.
export const runtime = "nodejs";

export async function POST(request: Request): Promise<Response> {
  const takesMs = Number(new URL(request.url).searchParams.get("takesMs") ?? 20);
  try {
    const report = await lock(
      async ({ fence, signal }) => {
        await sleep(takesMs, undefined, { signal }); // the work
        // Stored with the report: a later holder's is larger.
        return { report: "done", fence };
      },
      {
        key: "report",
        ttlMs: 10_000,
        autoExtend: true,
        // A client that is gone needs no report. The lock is released all the same.
        signal: request.signal,
        acquisition: { maxRetries: 0 },
      },
    );
    return Response.json(report);
  } catch (error) {
    // Nobody reads this; the status is what logs of servers call it.
    if (request.signal.aborted) return new Response(null, { status: 499 });
    const reason: unknown = error instanceof LockError ? error : (error as Error).cause;
    if (!(reason instanceof LockError)) throw error;
    const isBusy = reason.code === "AcquisitionTimeout";
    return Response.json(
      { error: isBusy ? "a report is being made" : reason.code },
      { status: isBusy ? 409 : 503, headers: { "retry-after": "1" } },
    );
  }
}
