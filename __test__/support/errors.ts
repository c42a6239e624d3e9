import { LockError } from "syncguard";

/** What a promise is rejected with; fails if it is not rejected. */
export async function rejection(promise: Promise<unknown>): Promise<unknown> {
  let value: unknown;
  try {
    value = await promise;
  } catch (error) {
    return error;
  }
  throw new Error(`expected a rejection, got ${typeof value}`);
}

/** The LockError that a promise is rejected with; fails if it is anything else. */
export async function lockError(promise: Promise<unknown>): Promise<LockError> {
  const error = await rejection(promise);
  if (error instanceof LockError) return error;
  throw new Error("expected a LockError", { cause: error });
}

/** The LockError that a function throws; fails if it throws anything else. */
export function thrownLockError(run: () => unknown): LockError {
  try {
    run();
  } catch (error) {
    if (error instanceof LockError) return error;
    throw new Error("expected a LockError", { cause: error });
  }
  throw new Error("expected an error");
}
