import { hostname } from "node:os";
import { BACKEND_DEFAULTS } from "../../lock/defaults.js";
import { leaseOf } from "../../lock/handle.js";
import type { HeldLock } from "../../lock/types.js";
import { LockError } from "../../native/errors.js";
import { Child } from "../child.js";
import { type Command, type Invocation, text, type Values } from "../command.js";
import { readDuration, readPositiveDuration } from "../duration.js";
import { CliError, Exit, exitCodeOfSignal, toCliError, usage } from "../exit.js";
import type { Output } from "../output.js";
import { type Backend, withBackend } from "../store.js";

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
  operands: ["<key>"],
  rest: "command [argument…]",
  description:
    "Takes the lock, runs the command, and releases the lock when the command ends: flock for a fleet. If somebody else holds the\n" +
    "lock, the command is not run and the exit code is 75. The lock extends itself while the command runs. If it is lost\n" +
    "nevertheless, the command gets SIGTERM, and SIGKILL after --kill-after.\n" +
    "The command has SYNCGUARD_KEY and SYNCGUARD_FENCE in its environment. No shell is involved: use sh -c for one.",
  options: {
    ttl: {
      type: "string",
      value: "DURATION",
      help: "after which the lock ends by itself if this machine dies; default 30s",
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
      "syncguard exec job:nightly-report -- node report.mjs",
      "on every machine's cron: one runs it",
    ],
    ["syncguard exec migrate --wait 5m -- npm run migrate", "one after the other"],
    ['syncguard exec backup --ttl 2m -- sh -c "pg_dump app | gzip > app.gz"', "with a shell"],
  ],
  exits: [
    ["N", "the command's own exit code"],
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

type Settings = {
  readonly key: string;
  readonly ttlMs: number;
  readonly waitMs: number;
  readonly killAfterMs: number;
  readonly autoExtend: boolean;
  readonly owner: string;
};

function read({ values, operands }: Invocation): Settings {
  if (values["auto-extend"] === true && values["no-auto-extend"] === true) {
    throw usage("--auto-extend and --no-auto-extend exclude each other");
  }
  const duration = (name: string, otherwise: number, from: typeof readDuration): number => {
    const given = text(values, name);
    return given === undefined ? otherwise : from(given, name);
  };
  return {
    key: operands[0] as string,
    ttlMs: duration("ttl", BACKEND_DEFAULTS.ttlMs, readPositiveDuration),
    waitMs: duration("wait", 0, readDuration),
    killAfterMs: duration("kill-after", DEFAULT_KILL_AFTER_MS, readDuration),
    autoExtend: values["no-auto-extend"] !== true,
    owner: ownerOf(values),
  };
}

function ownerOf(values: Values): string {
  return text(values, "owner") ?? `${hostname().slice(0, 200)}:${process.pid}`;
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
      await held?.release();
      return exitCodeOfSignal(signals.first);
    }
    if (held === undefined) {
      const { waitMs } = settings;
      throw new CliError(
        "Locked",
        Exit.LOCKED,
        "somebody else holds the lock: the command was not run",
        waitMs > 0 ? undefined : "--wait 5m waits for it; `syncguard status` shows who holds it",
      );
    }
    // The lock's loss is told as everything else is that a command has to say.
    const lease = leaseOf(held);
    if (lease !== undefined) lease.onLost = () => undefined;
    return await runCommand(held, settings, rest, signals, out);
  } finally {
    signals.close();
  }
}

/** The lock; `undefined` if somebody else holds it, or if a signal ended the waiting. */
async function acquire(
  backend: Backend,
  { key, ttlMs, waitMs, autoExtend, owner }: Settings,
  { told }: Signals,
): Promise<HeldLock | undefined> {
  const options = { ttlMs, owner, signal: told, autoExtend: autoExtend || undefined };
  try {
    if (waitMs === 0) {
      const attempt = await backend.acquire({ key, ...options });
      return attempt.ok ? attempt : undefined;
    }
    const acquisition = {
      timeoutMs: waitMs,
      maxRetries: Number.MAX_SAFE_INTEGER,
      retryDelayMs: ASK_AGAIN_MS,
      backoff: "fixed",
    } as const;
    return await backend.lock(key, { ...options, acquisition });
  } catch (error) {
    const code = error instanceof LockError ? error.code : undefined;
    if (code === "AcquisitionTimeout" || (code === "Aborted" && told.aborted)) return undefined;
    throw error;
  }
}

async function runCommand(
  held: HeldLock,
  { key, ttlMs, killAfterMs }: Settings,
  [command = "", ...args]: readonly string[],
  signals: Signals,
  out: Output,
): Promise<number> {
  const env = { ...process.env, SYNCGUARD_KEY: key, SYNCGUARD_FENCE: held.fence };
  out.detail(`the lock is held under fence ${held.fence}`);
  let child: Child;
  try {
    // It may have taken long until we heard of the grant.
    held.signal.throwIfAborted();
    // Nobody extends the lock once we are killed, and the last heartbeat was up to a third of the TTL ago.
    child = new Child(command, args, env, Math.min(killAfterMs, ttlMs / 2));
  } catch (error) {
    await release(held, out);
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
      await release(held, out);
      throw error;
    });
    // There is nothing to end any more, should the lock be found gone now.
    held.signal.removeEventListener("abort", onLost);
    if (stopped === undefined && (await release(held, out))) return code;
    await stopped;
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

function lossOf({ signal }: HeldLock): string {
  const reason: unknown = signal.reason;
  return reason instanceof Error ? reason.message : "the lock was lost";
}

/** Gives whether the lock was ours until now, as far as we know. */
async function release(held: HeldLock, out: Output): Promise<boolean> {
  try {
    return (await held.release()).ok;
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
  get told(): AbortSignal {
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
