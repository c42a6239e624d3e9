/** Firestore emulators: each on a free port, and ended with its tests. */

import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Firestore } from "@google-cloud/firestore";
// @ts-expect-error a module of the scripts, in plain JavaScript
import { target } from "../../scripts/lib/paths.mjs";

// Without it, the client of Google looks for the metadata server of a machine in its cloud.
process.env.METADATA_SERVER_DETECTION = "none";

/** Something to go wrong; see the README of `verify/firestore-emulator`. */
export type Fault = {
  effect:
    | { status: string }
    | { latencyMs: number }
    | { dropReply: "silence" | "unavailable" }
    | { omit: "transaction" | "documents" };
  method?: string;
  rate?: number;
  times?: number;
};

export type Emulator = {
  /** `host:port` */
  readonly host: string;
  /** Puts these faults in force instead of those before. */
  setFaults: (...faults: Fault[]) => Promise<void>;
  /** How often each call was made since `resetCalls`. */
  calls: () => Promise<Record<string, number>>;
  resetCalls: () => Promise<void>;
  /** Sets by how many milliseconds its clock is ahead of this machine's. */
  setClockAhead: (ms: number) => Promise<void>;
  stop: () => Promise<void>;
};

// Whatever happens in this process, no emulator outlives it.
const running = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of running) child.kill("SIGKILL");
});

/** Starts an emulator of `verify/firestore-emulator`. */
export async function startEmulator(): Promise<Emulator> {
  const program = join(target as string, "debug", "firestore-emulator");
  if (!existsSync(program)) {
    throw new Error(`${program} is missing: cargo build --package firestore-emulator`);
  }
  const child = spawn(program, ["--orders"], { stdio: ["pipe", "pipe", "inherit"] });
  running.add(child);
  const ended = once(child, "exit").then(() => running.delete(child));
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  const nextLine = async (): Promise<string> => {
    const line = await lines.next();
    if (line.done === true) throw new Error("the emulator has ended");
    return line.value;
  };
  const order = async (text: string): Promise<string> => {
    child.stdin.write(`${text}\n`);
    const answer = await nextLine();
    if (answer.startsWith("error")) throw new Error(`the emulator refuses ${text}: ${answer}`);
    return answer;
  };
  return {
    host: await nextLine(),
    setFaults: async (...faults) => {
      await order(`faults ${JSON.stringify(faults)}`);
    },
    calls: async () => JSON.parse(await order("calls")) as Record<string, number>,
    resetCalls: async () => {
      await order("reset-calls");
    },
    setClockAhead: async (ms) => {
      await order(`clock ${ms}`);
    },
    stop: async () => {
      child.stdin.end();
      await ended;
    },
  };
}

/** What FIRESTORE_EMULATOR_HOST names, else an emulator of our own. */
export async function anyEmulator(): Promise<Pick<Emulator, "host" | "stop">> {
  const host = process.env.FIRESTORE_EMULATOR_HOST;
  if (!host) return await startEmulator();
  return { host, stop: () => Promise.resolve() };
}

/** A project that no other test uses. */
export function newProject(): string {
  return `test-${randomUUID()}`;
}

/** A client of Google on the emulator at `host`. */
export function googleClient(host: string, projectId = newProject()): Firestore {
  return new Firestore({ projectId, host, ssl: false });
}
