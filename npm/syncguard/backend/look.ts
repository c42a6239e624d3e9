/** Looks at locks, and frees a lock whoever holds it. */

import { addContext } from "../native/errors.js";
import { settle } from "../native/outcome.js";
import { checkObject, invalid } from "../options/validation.js";
import { optionNames, refuseUnknown } from "../options/names.js";
import { checkKey, given, startingSignal } from "../values/arguments.js";
import type { BackendContext } from "./context.js";
import { attachRawData, sanitizeLockInfo } from "../watching/diagnostics.js";
import { failure } from "../values/mutation.js";
import type {
  BackendCapabilities,
  KeyLookup,
  KeyOp,
  LockInfo,
  OwnershipLookup,
  ReleaseResult,
  SyncGuardBackend,
} from "../values/types.js";
import { validateLockId } from "../values/values.js";

const FORCE_OPTIONS = optionNames("forceRelease()", ["signal"]);

export async function isLocked({ store, grants }: BackendContext, opts: KeyOp): Promise<boolean> {
  const { key } = given(opts);
  try {
    checkKey(key);
    const signal = startingSignal(opts);
    grants.checkOpen();
    return settle(await store.isLocked(key, signal));
  } catch (error) {
    throw addContext(error, key);
  }
}

export async function lookup<C extends BackendCapabilities>(
  { store, grants, capabilities }: BackendContext,
  opts: KeyLookup | OwnershipLookup,
): Promise<LockInfo<C> | null> {
  const wanted = given<Partial<KeyLookup & OwnershipLookup>>(opts);
  const [key, lockId] = [wanted.key ?? undefined, wanted.lockId ?? undefined];
  if ((key === undefined) === (lockId === undefined)) {
    throw invalid("lookup needs either a key or a lockId");
  }
  try {
    if (lockId === undefined) checkKey(key);
    else validateLockId(lockId);
    const signal = startingSignal(opts);
    grants.checkOpen();
    const record = settle(
      lockId === undefined
        ? await store.lookupByKey(key as string, signal)
        : await store.lookupByLockId(lockId, signal),
    );
    if (record === null) return null;
    return attachRawData(sanitizeLockInfo<C>(record, capabilities as Readonly<C>), record);
  } catch (error) {
    throw addContext(error, key, lockId);
  }
}

export async function forceRelease(
  { store, grants }: BackendContext,
  key: string,
  more: Parameters<SyncGuardBackend["forceRelease"]>[1],
): Promise<ReleaseResult> {
  try {
    checkKey(key);
    const options = more ?? {};
    checkObject(options, "options");
    refuseUnknown(options, FORCE_OPTIONS);
    const signal = startingSignal(options);
    grants.checkOpen();
    const released = settle(await store.forceRelease(key, signal));
    return released ? { ok: true } : failure("not-found");
  } catch (error) {
    throw addContext(error, key);
  }
}
