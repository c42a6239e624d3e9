// Runs when an instance starts, before it serves: https://nextjs.org/docs/app/guides/instrumentation

/** Stands for a table of the database: the migrations that are done. */
export const applied: string[] = [];

async function migrate(): Promise<void> {
  // Read under the lock: whoever had it before may have done everything.
  if (applied.includes("001-accounts")) return;
  applied.push("001-accounts");
}

export async function register(): Promise<void> {
  // The edge runtime cannot load native code, and must not find it in its bundle.
  if (process.env["NEXT_RUNTIME"] !== "nodejs") return;
  const { lock } = await import("syncguard");
  await lock(migrate, {
    key: "migrations",
    ttlMs: 10_000,
    autoExtend: true,
    // Whoever starts second waits until the schema is there.
    acquisition: { timeoutMs: 600_000, maxRetries: Infinity },
  });
}
