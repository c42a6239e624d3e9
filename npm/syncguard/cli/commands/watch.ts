import { addon } from "../../native/addon.js";
import { type Change, changes } from "../changes.js";
import type { Command, Invocation } from "../command.js";
import { text } from "../values.js";
import { readPositiveDuration } from "../duration.js";
import { Exit, toCliError } from "../exit.js";
import { printable, stdoutEnded } from "../output.js";
import { direct } from "../../inspection/direct.js";
import { ofLookup, type ShownLock, shownLock } from "../../inspection/locks.js";
import { expiry, time } from "../locks.js";
import { type Backend, withBackend } from "../store.js";

const DEFAULT_INTERVAL_MS = 1000;
/** How often to look whether anybody still reads. */
const READER_INTERVAL_MS = 250;

export const watch: Command = {
  name: "watch",
  summary: "print what becomes of a lock, until Ctrl-C or until nobody reads it",
  operands: ["<key>"],
  description:
    "Prints a line when the lock is acquired, extended, released or expired. The store tells of releases; everything else is seen at\n" +
    "the next look, so that a lock which comes and goes between two looks is missed. Fences show that: they grow with each holder.",
  options: {
    interval: {
      type: "string",
      value: "DURATION",
      help: "from one look to the next; default 1s",
    },
  },
  examples: [
    ["syncguard watch job:nightly-report", "until Ctrl-C"],
    ["syncguard watch deploy --json | jq --unbuffered .event", "a line of JSON for each event"],
  ],
  exits: [["0", "ended by Ctrl-C or SIGTERM, or because nobody reads the output"]],
  run: async (invocation) => {
    const interval = text(invocation.values, "interval");
    const intervalMs =
      interval === undefined ? DEFAULT_INTERVAL_MS : readPositiveDuration(interval, "interval");
    return await withBackend(
      invocation.values,
      invocation.out,
      async (backend) => await observe(backend, intervalMs, invocation),
    );
  },
};

async function observe(
  backend: Backend,
  intervalMs: number,
  { operands, out }: Invocation,
): Promise<number> {
  const key = operands[0] as string;
  const stopping = new AbortController();
  const stop = (): void => {
    stopping.abort();
  };
  process.on("SIGINT", stop).on("SIGTERM", stop);
  // Whoever reads may stop, as `head -1` does, long before there is anything to write that would fail.
  const { stdoutHasReader } = addon();
  const reader = setInterval(() => {
    if (stdoutEnded.aborted || !stdoutHasReader()) stop();
  }, READER_INTERVAL_MS);
  const wakeUp = new WakeUp();
  stopping.signal.addEventListener("abort", wakeUp.come);
  const { watch } = await direct(backend)(key, undefined, async (store) =>
    Promise.resolve({ watch: store.watch(key) }),
  );
  let isListening = false;
  const listen = async (): Promise<void> => {
    if (watch === undefined || isListening) return;
    isListening = true;
    await watch(stopping.signal);
    isListening = false;
    wakeUp.come();
  };
  try {
    let before: ShownLock | undefined;
    let isFirst = true;
    let isReachable = true;
    while (!stopping.signal.aborted) {
      // Asked for before the look: nothing can happen in between that is not told.
      void listen();
      let waitMs = intervalMs;
      try {
        const info = await backend.lookup({ key, signal: stopping.signal });
        const lock = info === null ? undefined : shownLock(ofLookup(info), false);
        if (!isReachable) out.note("the store answers again");
        isReachable = true;
        for (const change of changes(before, lock, isFirst)) report(change, out);
        [before, isFirst] = [lock, false];
      } catch (error) {
        if (stopping.signal.aborted) break;
        // What is wrong from the start is no passing trouble.
        if (isFirst) throw error;
        if (isReachable) out.note(`${toCliError(error).message}: trying again`);
        isReachable = false;
        waitMs = Math.max(waitMs, DEFAULT_INTERVAL_MS);
      }
      await wakeUp.wait(waitMs);
    }
    return Exit.OK;
  } finally {
    clearInterval(reader);
    process.off("SIGINT", stop).off("SIGTERM", stop);
  }
}

/** Ends a wait early, also if it comes just before. */
class WakeUp {
  private hasCome = false;
  private end: (() => void) | undefined;

  readonly come = (): void => {
    this.hasCome = true;
    this.end?.();
  };

  async wait(ms: number): Promise<void> {
    if (!this.hasCome) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, ms);
        this.end = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    this.hasCome = false;
    this.end = undefined;
  }
}

function report({ event, lock }: Change, out: Invocation["out"]): void {
  const atMs = Date.now();
  out.result({ event, atMs, ...(lock === undefined ? {} : { lock }) }, () => {
    const parts = [time(atMs), event];
    if (lock !== undefined) {
      parts.push(`fence ${lock.fence}`);
      if (lock.owner !== null) parts.push(`owner ${printable(lock.owner)}`);
      if (event === "held" || event === "acquired" || event === "extended") {
        parts.push(`expires ${expiry(lock.expiresInMs)}`);
      }
    }
    return parts.join("  ");
  });
}
