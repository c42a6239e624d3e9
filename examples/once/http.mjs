// A handler that a scheduler calls over HTTP, as Vercel Cron, Cloud Scheduler and many others do. They may call twice for one time, and call
// again after an error: https://vercel.com/docs/cron-jobs/manage-cron-jobs

/** `export const GET = cronHandler(…)`: the job runs once in each period of `everyMs`, whoever calls, and however often. */
export function cronHandler(backend, name, everyMs, job, secret = process.env.CRON_SECRET) {
  return async (request) => {
    if (secret && request.headers.get("authorization") !== `Bearer ${secret}`) {
      return new Response("unauthorized", { status: 401 });
    }
    const due = Math.floor(Date.now() / everyMs);
    const options = { due, ttlMs: 60_000, autoExtend: true };
    const run = await backend.once(name, options, (handle) => job(handle, due));
    // 409, so that it is called again later: whoever does it now may fail.
    if (!run.ran && run.reason === "running") return new Response("running", { status: 409 });
    return Response.json({ ran: run.ran, reason: run.reason });
  };
}
