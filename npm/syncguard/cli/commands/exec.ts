import { BACKEND_DEFAULTS } from "../../values/defaults.js";
import { leaseOf as leaseOfAny } from "../../holding/handle.js";
import { finishHeld, releaseUnused } from "../../holding/held.js";
import { refuseFarAhead } from "../../backend/once.js";
import type { Done } from "../../values/due.js";
import { accessTo, type AcquireArguments, acquireOf } from "../../holding/internals.js";
import type { Lease } from "../../holding/lease.js";
import type {
  GrantedLock,
  HeldLock,
  HeldLocks,
  OnLost,
  ReleaseResult,
} from "../../values/types.js";
import { constants } from "../../native/constants.js";
import { LockError } from "../../native/errors.js";
import { Child } from "../child.js";
import type { Command, Invocation } from "../command.js";
import { readCount, text, type Values } from "../values.js";
import { readDuration, readPositiveDuration } from "../duration.js";
import { CliError, Exit, exitCodeOfSignal, toCliError, usage } from "../exit.js";
import { shownMark } from "../marks.js";
import type { Output } from "../output.js";
import { type Backend, withBackend } from "../store.js";
import { readPeriod } from "./mark.js";

/** The signals that the command gets in our place. */
const FORWARDED = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"] as const;

/**
 * While waiting, the store tells when the lock is free. Asking again every so often is for what it could not tell.
 */
const ASK_AGAIN_MS = 1000;

const DEFAULT_KILL_AFTER_MS = 10_000;

export const exec: Command = {
  name: "exec",
  summary: "run a command while holding a lock",
  operands: ["<key>…"],
  rest: "command [argument…]",
  description:
    "Takes the lock, runs the command, and releases the lock when the command ends: flock for a fleet. If somebody else holds the\n" +
    "lock, the command is not run and the exit code is 75. The lock extends itself while the command runs. If it is lost\n" +
    "nevertheless, the command gets SIGTERM, and SIGKILL after --kill-after.\n" +
    "Several keys are taken all or nothing. With --slots, at most so many commands run at a time, on all machines.\n" +
    "The command has SYNCGUARD_KEY and SYNCGUARD_FENCE in its environment, of a slot SYNCGUARD_SLOT as well; of several locks\n" +
    "SYNCGUARD_KEY_1, SYNCGUARD_FENCE_1 and so on, in the order of the keys. No shell is involved: use sh -c for one.\n" +
    "With --once, the command runs only if no command has run to its end for this period, or for a later one: otherwise the exit\n" +
    "code is 0, or 65 if it was a later one. A command that ends with another code than 0 leaves the period open.",

  options: {
    ttl: {
      type: "string",
      value: "DURATION",
      help: "after which the lock ends by itself if this machine dies; default 30s",
    },
    slots: {
      type: "string",
      value: "N",
      help: "take one of N slots of the key, in place of the lock on it",
    },
    shared: {
      type: "boolean",
      help: "share the lock with all others who do, and with nobody else",
    },
    take: { type: "string", value: "K", help: "with --slots: take K of them, or none" },
    "min-hold": {
      type: "string",
      value: "DURATION",
      help: "keep the lock for so long, also if the command ends sooner; at most --ttl",
    },
    once: {
      type: "string",
      value: "DUE",
      help: "once for each period: a number, or a text that sorts, such as an ISO date; all of a key are of one kind",
    },
    "allow-ahead": {
      type: "boolean",
      help: "with --once: also a date more than a day ahead of the store's clock",
    },
    wait: {
      type: "string",
      value: "DURATION",
      help: "how long to wait for the lock; default 0: one attempt",
    },
    "auto-extend": { type: "boolean", help: "extend the lock while the command runs; the default" },
    "no-auto-extend": {
      type: "boolean",
      help: "let the lock end after --ttl; a command that runs longer is ended then",
    },
    "kill-after": {
      type: "string",
      value: "DURATION",
      help: "when the lock is lost: from SIGTERM to SIGKILL; default 10s",
    },
    owner: {
      type: "string",
      value: "TEXT",
      help: "a label that status shows; default HOST:PID",
    },
  },
  examples: [
    [
      "syncguard exec account:1 account:2 --wait 10s -- ./transfer",
      "under both locks, or not at all",
    ],
    ["syncguard exec api:partner --slots 5 --wait 1m -- ./call-partner", "at most five at a time"],
    [
      'syncguard exec nightly-report --once "$(date -u +%F)" -- node report.mjs',
      "on every machine's cron: one runs it, once a day, however their clocks differ",
    ],
    ["syncguard exec migrate --wait 5m -- npm run migrate", "one after the other"],
    ['syncguard exec backup --ttl 2m -- sh -c "pg_dump app | gzip > app.gz"', "with a shell"],
  ],
  exits: [
    ["N", "the command's own exit code"],
    ["0", "also with --once: it was done before, for this period"],
    ["65", "with --once: it was done before, for a later period; the command was not run"],
    ["128+N", "the command was ended by signal N, or exec was while it waited"],
    ["75", "somebody else holds the lock; the command was not run"],
    ["76", "the lock was lost before the command had ended"],
    ["126, 127", "the command cannot be run, was not found"],
  ],
  run: async (invocation) => {
    const settings = read(invocation);
    return await withBackend(
      invocation.values,
      invocation.out,
      async (backend) => await runUnderLock(backend, settings, invocation),
      true,
    );
  },
};

type Held = HeldLock | HeldLocks;

/** Backends of this package give handles. */
function leaseOf(held: Held): Lease {
  return leaseOfAny(held) as Lease;
}

/** The answer to an attempt for a period that is done. */
type NothingToDo = { readonly ok: false; readonly done: Done };

type Settings = {
  /** As given; they stand in this order in the environment of the command. */
  readonly keys: readonly string[];
  readonly slots: number | undefined;
  readonly isShared: boolean;
  readonly take: number | undefined;
  readonly ttlMs: number;
  readonly minHoldMs: number;
  readonly waitMs: number;
  readonly due: string | undefined;
  readonly allowAhead: boolean;
  readonly killAfterMs: number;
  readonly autoExtend: boolean;
  readonly owner: string | undefined;
};

function read({ values, operands }: Invocation): Settings {
  if (values["auto-extend"] === true && values["no-auto-extend"] === true) {
    throw usage("--auto-extend and --no-auto-extend exclude each other");
  }
  const duration = (name: string, otherwise: number, from: typeof readDuration): number => {
    const value = text(values, name);
    return value === undefined ? otherwise : from(value, name);
  };
  const { slots, take } = readSlots(values, operands);
  const ttlMs = duration("ttl", BACKEND_DEFAULTS.ttlMs, readPositiveDuration);
  const minHoldMs = duration("min-hold", 0, readDuration);
  if (minHoldMs > ttlMs) throw usage("--min-hold must not be longer than --ttl");
  const isShared = values.shared === true;
  if (isShared && slots !== undefined) throw usage("--shared and --slots exclude each other");
  const due = readOnce(values, operands.length === 1 && slots === undefined && !isShared);
  return {
    ...{ keys: [...new Set(operands)], slots, take, isShared, ttlMs, minHoldMs },
    waitMs: duration("wait", 0, readDuration),
    due,
    allowAhead: values["allow-ahead"] === true,
    killAfterMs: duration("kill-after", DEFAULT_KILL_AFTER_MS, readDuration),
    autoExtend: values["no-auto-extend"] !== true,
    owner: text(values, "owner"),
  };
}

/** How many slots the key has, and how many of them are wanted. */
function readSlots(values: Values, operands: readonly string[]): Pick<Settings, "slots" | "take"> {
  const slots = readCount(values, "slots", constants.maxSlots);
  const take = readCount(values, "take", constants.maxClaims);
  if (slots !== undefined && operands.length > 1) throw usage("--slots is for one key");
  if (take !== undefined && slots === undefined) throw usage("--take needs --slots");
  if (slots !== undefined && take !== undefined && take > slots) {
    throw usage("--take must not be larger than --slots");
  }
  return { slots, take };
}

/** The period for which the command is to run once. */
function readOnce(values: Values, isOneKey: boolean): string | undefined {
  const once = text(values, "once");
  if (once === undefined) {
    if (values["allow-ahead"] === true) throw usage("--allow-ahead needs --once");
    return undefined;
  }
  // A word such as "tomorow" is the same every day, and is later than every date.
  if (!/\d/.test(once)) {
    throw usage("--once needs a digit: it names a period", 'a date: --once "$(date -u +%F)"');
  }
  if (!isOneKey) throw usage("--once is for one key");
  for (const other of ["wait", "min-hold"]) {
    if (values[other] !== undefined) throw usage(`--once and --${other} exclude each other`);
  }
  return readPeriod(once, "once");
}

async function runUnderLock(
  backend: Backend,
  settings: Settings,
  { rest, out }: Invocation,
): Promise<number> {
  const signals = new Signals();
  try {
    out.detail("waiting for the lock");
    const held = await acquire(backend, settings, signals);
    if (signals.first !== undefined) {
      if (held?.ok === true) await releaseUnused(leaseOf(held), accessTo(backend));
      return exitCodeOfSignal(signals.first);
    }
    if (held === undefined) {
      const { waitMs } = settings;
      throw new CliError(
        "Locked",
        Exit.LOCKED,
        `${whyNot(settings)}: the command was not run`,
        waitMs > 0 ? undefined : "--wait 5m waits for it; `syncguard status` shows who holds it",
      );
    }
    if (!held.ok && held.done.isLater) {
      throw new CliError(
        "Ahead",
        Exit.AHEAD,
        `a later period than --once is done, ${shownMark(held.done)}: the command was not run`,
        "if a wrong clock has stored it, `syncguard mark KEY --set DUE --yes` with the last DUE that is right sets it back",
      );
    }
    if (!held.ok) {
      out.detail(`nothing to do: done for ${shownMark(held.done)}`);
      return Exit.OK;
    }
    return await runCommand({ backend, held, settings, signals, out }, rest);
  } finally {
    signals.close();
  }
}

function whyNot({ keys, slots, take = 1 }: Settings): string {
  if (keys.length > 1) return "somebody else holds one of the locks";
  if (slots === undefined) return "somebody else holds the lock";
  return take === 1 ? "all slots are in use" : "too few slots are free";
}

/** The lock; `undefined` if somebody else holds it, or if a signal ended the waiting; or what is done already. */
async function acquire(
  backend: Backend,
  settings: Settings,
  { came }: Signals,
): Promise<Held | NothingToDo | undefined> {
  const { keys, slots, take, isShared, ttlMs, minHoldMs, waitMs, autoExtend, owner } = settings;
  const [key = ""] = keys;
  const mode = isShared ? ("shared" as const) : undefined;
  const claims =
    slots === undefined ? keys.map((name) => ({ key: name, mode })) : [{ key, slots, take }];
  const isOne = keys.length === 1 && slots === undefined;

  const options = { ttlMs, owner, signal: came, autoExtend: autoExtend || undefined };
  // The lock's loss is told as everything else is that a command has to say.
  const onLost = (): void => undefined;
  try {
    if (waitMs === 0) {
      const target = isOne ? { key, mode } : { claims };
      const wanted = { ...options, ...target } as AcquireArguments;
      return await acquireOnce(backend, wanted, settings, onLost);
    }
    const acquisition = {
      timeoutMs: waitMs,
      maxRetries: Number.MAX_SAFE_INTEGER,
      retryDelayMs: ASK_AGAIN_MS,
      backoff: "fixed",
    } as const;
    const held = { onLost, minHoldMs: minHoldMs > 0 ? minHoldMs : undefined };
    const how = { ...options, ...held, acquisition };
    return await (isOne ? backend.lock(key, { ...how, mode }) : backend.lock(claims, how));
  } catch (error) {
    const code = error instanceof LockError ? error.code : undefined;
    if (code === "AcquisitionTimeout" || (code === "Aborted" && came.aborted)) return undefined;
    throw error;
  }
}

/** How the command's options are called. */
const FLAGS = { due: "--once", allowAhead: "--allow-ahead" };

/** One attempt. */
async function acquireOnce(
  backend: Backend,
  opts: AcquireArguments,
  { due, allowAhead, ttlMs, minHoldMs }: Settings,
  onLost: OnLost,
): Promise<Held | NothingToDo | undefined> {
  const attempt = await acquireOf(backend)?.(opts, { due, terms: { onLost, minHoldMs } });
  if (attempt?.ok === true) {
    const held = attempt as HeldLock;
    if (!allowAhead) await refuseFarAhead(accessTo(backend), leaseOf(held), ttlMs, FLAGS);
    return held;
  }
  const refused = attempt as Partial<NothingToDo> | undefined;
  return refused?.done === undefined ? undefined : (refused as NothingToDo);
}

/** What the command is told of the locks. */
function environment(held: Held, { keys }: Settings): NodeJS.ProcessEnv {
  // Not those of an exec around this one, whose fence could be taken for ours.
  const isOuter = (name: string): boolean => /^SYNCGUARD_(KEY|FENCE|SLOT)(_\d+)?$/.test(name);
  const env: NodeJS.ProcessEnv = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !isOuter(name)),
  );
  const locks = locksOf(held);
  const inOrder = keys.flatMap((key) => locks.filter((lock) => lock.key === key));
  for (const [at, { key, slot, fence }] of inOrder.entries()) {
    const number = inOrder.length === 1 ? "" : `_${at + 1}`;
    env[`SYNCGUARD_KEY${number}`] = key;
    env[`SYNCGUARD_FENCE${number}`] = fence;
    if (slot !== undefined) env[`SYNCGUARD_SLOT${number}`] = String(slot);
  }
  return env;
}

function locksOf(held: Held): readonly Omit<GrantedLock, "lockId">[] {
  return "locks" in held ? held.locks : [held];
}

/** What the command runs under. */
type Run = {
  readonly backend: Backend;
  readonly held: Held;
  readonly settings: Settings;
  readonly signals: Signals;
  readonly out: Output;
};

async function runCommand(
  { backend, held, settings, signals, out }: Run,
  [command = "", ...args]: readonly string[],
): Promise<number> {
  const { ttlMs, killAfterMs } = settings;
  const lease = leaseOf(held);
  const env = environment(held, settings);
  for (const { fence, slot } of locksOf(held)) {
    const what = slot === undefined ? "the lock" : `slot ${slot}`;
    out.detail(`${what} is held under fence ${fence}`);
  }
  let child: Child;
  try {
    // It may have taken long until we heard of the grant.
    held.signal.throwIfAborted();
    // Nobody extends the lock once we are killed, and the last heartbeat was up to a third of the TTL ago.
    child = new Child(command, args, env, Math.min(killAfterMs, ttlMs / 2));
  } catch (error) {
    await releaseQuietly(() => releaseUnused(lease, accessTo(backend)), out);
    throw error;
  }
  out.detail("the command runs");
  signals.pass((signal) => {
    child.forward(signal);
  });
  let stopped: Promise<void> | undefined;
  const onLost = (): void => {
    stopped = child.stop(killAfterMs);
    // It may take a while to end. With --json, stderr has one object, which comes when it has ended.
    if (!out.json) out.note(`${lossOf(held)}: ending the command`);
  };
  if (held.signal.aborted) onLost();
  else held.signal.addEventListener("abort", onLost, { once: true });
  try {
    const code = await child.ended.catch(async (error: unknown) => {
      // Not started: nothing was done under the lock.
      await releaseQuietly(() => releaseUnused(lease, accessTo(backend)), out);
      throw error;
    });
    // There is nothing to end any more, should the lock be found gone now.
    held.signal.removeEventListener("abort", onLost);
    const isDone = settings.due !== undefined && code === 0 && stopped === undefined;
    if (isDone) {
      if (await finish(backend, lease)) return code;
    } else if (stopped === undefined && (await releaseQuietly(() => held.release(), out)))
      return code;
    await stopped;
    // Of several locks, the others are still there.
    if (stopped !== undefined && locksOf(held).length > 1)
      await releaseQuietly(() => held.release(), out);
    const what =
      stopped === undefined
        ? `the lock was gone when the command ended with ${code}`
        : `${lossOf(held)}; the command has ended with ${code}`;
    const message = `${what}: somebody else may have worked at the same time`;
    throw new CliError("LockLost", Exit.LOST, message);
  } finally {
    held.signal.removeEventListener("abort", onLost);
    child.close();
  }
}

function lossOf({ signal }: Held): string {
  const reason: unknown = signal.reason;
  return reason instanceof Error ? reason.message : "the lock was lost";
}

/** Releases the lock and stores that it is done; gives whether it was ours until then. */
async function finish(backend: Backend, lease: Lease): Promise<boolean> {
  try {
    return (await finishHeld(lease, accessTo(backend)))?.ok === true;
  } catch (error) {
    const failed = toCliError(error);
    const message = `${failed.message}: the command has ended with 0, and it may not be stored that it is done`;
    throw new CliError(failed.code, failed.exitCode, message);
  }
}

/** Gives whether the lock was ours until now, as far as we know. */
async function releaseQuietly(
  release: () => Promise<ReleaseResult>,
  out: Output,
): Promise<boolean> {
  try {
    return (await release()).ok;
  } catch (error) {
    out.note(`${toCliError(error).message}: the lock was not released, and ends with its TTL`);
    return true;
  }
}

/** The signals that we are sent: they end the waiting, and go to the command later. */
class Signals {
  private readonly controller = new AbortController();
  private forward: ((signal: NodeJS.Signals) => void) | undefined;
  /** The first one that came before the command ran. */
  first: NodeJS.Signals | undefined;

  constructor() {
    for (const signal of FORWARDED) process.on(signal, this.listener);
  }

  /** Aborted by the first signal. */
  get came(): AbortSignal {
    return this.controller.signal;
  }

  private readonly listener = (signal: NodeJS.Signals): void => {
    if (this.forward !== undefined) {
      this.forward(signal);
      return;
    }
    this.first ??= signal;
    this.controller.abort();
  };

  /** From now on, signals go there. */
  pass(forward: (signal: NodeJS.Signals) => void): void {
    this.forward = forward;
  }

  close(): void {
    for (const signal of FORWARDED) process.off(signal, this.listener);
  }
}
