import { checkDisposal, checkTtl } from "../values/arguments.js";
import { createBackendOn } from "../backend/backend.js";
import { type Clock, systemClock } from "../values/clock.js";
import { internalsOf } from "../holding/internals.js";
import type {
  BackendCapabilities,
  CommonBackendOptions,
  SyncGuardBackend,
} from "../values/types.js";
import { normalizeAndValidateKey } from "../values/values.js";
import { checkKnownOptions } from "../options/known.js";
import { checkServerOptions, invalid, withoutNulls } from "../options/validation.js";
import { Faults, type TestFaults, type FaultTargets } from "./faults.js";
import { TestStore } from "./store.js";
import { type Row, Table } from "./table.js";

/** The capabilities of a test backend. */
export interface TestCapabilities extends BackendCapabilities {
  /** The store, for those who handle backends of several. */
  backend: "test";
  /** Each acquisition comes with a fencing token. */
  supportsFencing: true;
  /** The clock of the test, or of the process, which all backends of one store share. */
  timeAuthority: "server";
}

/** Options of a test backend. */
export interface TestBackendOptions extends CommonBackendOptions {
  /** The clock by which locks end and waiters wait. Default: the process's own, which fake timers may replace. */
  clock?: Clock | undefined;
  /** Another test backend, whose locks this one sees: two backends on one store stand for two processes. */
  sharing?: TestBackend | undefined;
  /** Milliseconds after which an operation without an answer fails with `NetworkTimeout`. Default 5000. */
  operationTimeoutMs?: number | undefined;
}

/** A backend in memory, for tests. */
export interface TestBackend extends SyncGuardBackend<TestCapabilities> {
  /** Makes operations fail, and takes locks away. */
  readonly faults: TestFaults;
}

const OPTIONS = Object.keys({
  clock: true,
  sharing: true,
  operationTimeoutMs: true,
  cleanupInIsLocked: true,
  onReleaseError: true,
  onLost: true,
  disposeTimeoutMs: true,
} satisfies Record<keyof TestBackendOptions, true>);

const OPERATION_TIMEOUT_MS = 5_000;

/** Where a test backend has its table. */
const TABLE: unique symbol = Symbol("table");

/**
 * A backend in memory that behaves as the others do, for tests of code that uses locks: without native code, without a
 * server, with faults on demand, and on fake timers or a clock of the test's.
 *
 * @throws LockError `InvalidArgument` that names the option
 * @example
 * ```ts
 * import { createTestBackend, TestClock } from "syncguard/testing";
 *
 * const clock = new TestClock();
 * const backend = createTestBackend({ clock });
 * const held = await backend.lock("report:nightly", { autoExtend: true });
 * backend.faults.steal("report:nightly"); // what your code has to survive
 * await clock.advance(10_000); // the next heartbeat finds out
 * console.log(held.signal.aborted); // true
 * ```
 */
export function createTestBackend(options: TestBackendOptions = {}): TestBackend {
  const testOptions = withoutNulls(options);
  checkServerOptions(testOptions);
  checkKnownOptions(testOptions, OPTIONS, "test backend option");
  checkDisposal(testOptions);
  const table = tableOf(testOptions);
  const targets: FaultTargets = {
    steal: (key, ttlMs) => {
      const name = normalizeAndValidateKey(key);
      checkTtl(ttlMs);
      table.forceRelease(name);
      const rows = table.acquire([{ kind: "exclusive", key: name }], ttlMs, {});
      if ("freeInMs" in rows) throw invalid("the lock could not be stolen");
      const [{ lockId, fence }] = rows as readonly [Row];
      return { lockId, fence };
    },
    expire: (key) => table.expire(normalizeAndValidateKey(key)),
    lose: (key) => {
      const leases = [...(internalsOf(backend)?.grants?.held() ?? [])];
      // Those who share a key have a lock each.
      const lost = table.held(normalizeAndValidateKey(key)).filter(({ lockId }) => {
        const lease = leases.find(({ lockIds }) => lockIds.includes(lockId));
        if (lease === undefined) return false;
        table.release(lockId);
        lease.lostInStore(lockId);
        return true;
      });
      return lost.length > 0;
    },
    cameUp: () => table.tellAll(),
  };
  const faults = new Faults(targets);
  const store = new TestStore(table, faults, {
    operationTimeoutMs: testOptions.operationTimeoutMs ?? OPERATION_TIMEOUT_MS,
    cleanupInIsLocked: testOptions.cleanupInIsLocked === true,
  });
  const { clock } = table;
  const plain = createBackendOn<TestCapabilities>(store, testOptions, { clock });
  const backend = Object.assign(plain, { faults });
  return Object.defineProperty(backend, TABLE, { value: table });
}

function tableOf({ clock, sharing }: TestBackendOptions): Table {
  if (sharing === undefined) return new Table(checkClock(clock ?? systemClock));
  const table = (sharing as { readonly [TABLE]?: Table })[TABLE];
  if (table === undefined) throw invalid("sharing must be a backend of createTestBackend()");
  if (clock !== undefined && clock !== table.clock) {
    throw invalid("clock must be left out beside sharing: one store has one clock");
  }
  return table;
}

function checkClock(clock: Clock): Clock {
  const candidate = clock as Partial<Clock> | null;
  for (const name of ["now", "elapsed", "setTimeout", "clearTimeout"] as const) {
    if (typeof candidate?.[name] !== "function") throw invalid("clock must be a TestClock");
  }
  return clock;
}
