/** What the types of the class of redlock and of the Forrst extension promise. Compiled, never run. */

import { expectTypeOf } from "vitest";
import {
  type BackendCapabilities,
  createSqliteBackend,
  type DisposableLockHandle,
  type Fence,
  type LockBackend,
  withTelemetry,
} from "syncguard";
import {
  type AtomicLockHandle,
  createAtomicLock,
  type ForrstRequest,
  type ForrstResponse,
} from "syncguard/forrst";
import Redlock, { type Lock as RedlockLock, type RedlockAbortSignal } from "syncguard/redlock";

interface Plain extends BackendCapabilities {
  supportsFencing: false;
  timeAuthority: "client";
}
declare const plain: LockBackend<Plain>;
const sqlite = createSqliteBackend(":memory:");

// The class of redlock, as redlock's own declarations have it.
const redlock = new Redlock(["redis://localhost:6379", sqlite], {
  retryCount: -1,
  firstClientOnly: true,
});
expectTypeOf(
  redlock.acquire(["a"], 5_000, { retryDelay: 5 }),
).resolves.toEqualTypeOf<RedlockLock>();
expectTypeOf(
  redlock.using(["a"], 5_000, async () => await Promise.resolve(42)),
).resolves.toBeNumber();
await redlock.using(["a"], 5_000, { retryCount: 1 }, async (signal) => {
  expectTypeOf(signal).toEqualTypeOf<RedlockAbortSignal>();
  expectTypeOf(signal.error).toEqualTypeOf<Error | undefined>();
  return await Promise.resolve("a");
});
// @ts-expect-error resources are an array
void redlock.acquire("a", 5_000);

// The Forrst extension takes backends of this package, and hands out their fences.
expectTypeOf(createAtomicLock).parameter(0).toExtend<LockBackend>();
// @ts-expect-error a backend of one's own has no owners
createAtomicLock(plain);
const atomicLock = createAtomicLock(withTelemetry(sqlite, { onEvent: () => undefined }), {
  authorize: async (request) => request.id === "admin",
});
expectTypeOf(atomicLock.urn).toEqualTypeOf<"urn:forrst:ext:atomicLock">();
interface MyRequest extends ForrstRequest {
  id: string;
  caller: string;
}
declare const myRequest: MyRequest;
const response = await atomicLock.handle(
  myRequest,
  (given, lock) => {
    expectTypeOf(given).toEqualTypeOf<MyRequest>();
    expectTypeOf(lock?.fence).toEqualTypeOf<Fence | undefined>();
    expectTypeOf(lock?.owner).toEqualTypeOf<string | undefined>();
    return { id: given.id, result: given.caller };
  },
  { signal: AbortSignal.timeout(1) },
);
expectTypeOf(response).toEqualTypeOf<ForrstResponse>();
expectTypeOf(
  atomicLock.functions["urn:cline:forrst:ext:atomic-lock:fn:status"](myRequest),
).resolves.toEqualTypeOf<ForrstResponse>();
expectTypeOf<AtomicLockHandle>().toExtend<Pick<DisposableLockHandle, "extend">>();
// @ts-expect-error there is no such function
void atomicLock.functions.status;
