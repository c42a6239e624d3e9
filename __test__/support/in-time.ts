import type { LockError } from "syncguard";

/** Options of a backend whose time limits no test asks about: on a busy machine any store can be slow. */
export const PATIENT = { operationTimeoutMs: 30_000 } as const;

/** Whether the store has not answered within a time limit, or only after the end of the lock that it granted. */
export function isLate(error: unknown): boolean {
  return (error as LockError).code === "NetworkTimeout";
}

/**
 * What `attempt` comes to with so many milliseconds. It is made again with four times as many while the store has not answered
 * within them: on a busy machine no short time is enough for sure.
 */
export async function inTime<T>(ms: number, attempt: (ms: number) => Promise<T>): Promise<T> {
  try {
    return await attempt(ms);
  } catch (error) {
    if (!isLate(error) || ms > 10_000) throw error;
    return await inTime(4 * ms, attempt);
  }
}
