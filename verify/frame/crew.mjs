// The processes of a scene: they are started with a task in JSON, and stopped, killed and told to end.

import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";

/** What takes longer than this will not happen any more. */
const PATIENCE_MS = 60_000;

// If this process ends early, they would go on.
const living = new Set();
process.once("exit", () => {
  for (const child of living) child.kill("SIGKILL");
});

export class Crew {
  /** Processes that have ended as they should not: how, and what they said. */
  failures = [];
  #members = new Set();

  /**
   * Starts `program`, which finds its task in its first argument; `task.name` is the member's name.
   *
   * @param settings - `env`: variables beside those of this process; `onMessage` gets what the process sends; `diesBy`: the signal by which it may
   *   end itself
   * @returns the member; `ended` resolves once it has ended, to the `signal` by which that was, and the `failure` if it should not have
   */
  start(program, task, { env = {}, onMessage = () => undefined, diesBy } = {}) {
    const child = fork(program, [JSON.stringify(task)], {
      env: { ...process.env, ...env },
      stdio: ["ignore", "inherit", "pipe", "ipc"],
    });
    living.add(child);
    child.on("message", onMessage);
    const member = { name: task.name, child, expected: new Set([diesBy]) };
    member.ended = this.#end(member);
    this.#members.add(member);
    return member;
  }

  async #end(member) {
    const { name, child, expected } = member;
    const said = [];
    child.stderr.on("data", (text) => said.push(text));
    const [code, signal] = await once(child, "close");
    living.delete(child);
    this.#members.delete(member);
    if (code === 0 || expected.has(signal)) return { signal };
    const failure = `${name} has ended with ${code ?? signal}: ${said.join("")}`;
    this.failures.push(failure);
    return { signal, failure };
  }

  /** Sends a signal, by which the member may end. */
  send({ child, expected }, signal) {
    expected.add(signal);
    child.kill(signal);
  }

  /** Sends a signal to all, and waits until they have ended. */
  async end(signal) {
    const all = [...this.#members];
    for (const member of all) this.send(member, signal);
    await withinPatience(Promise.all(all.map(({ ended }) => ended)));
  }
}

/** Fails if nothing has come of it after a minute. */
export async function withinPatience(promise) {
  const late = sleep(PATIENCE_MS, undefined, { ref: false }).then(() => {
    throw new Error(`nothing has happened for ${PATIENCE_MS} ms`);
  });
  late.catch(() => undefined);
  return await Promise.race([promise, late]);
}
