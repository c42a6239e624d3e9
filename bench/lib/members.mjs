// The processes of the contenders, seen from whoever asks them.

import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

const MEMBER = fileURLToPath(new URL("member.mjs", import.meta.url));

const running = new Set();

/** Ends those that still run, whatever they do. */
export function endMembers() {
  for (const child of running) child.kill("SIGKILL");
}

/**
 * Starts a process of the contender `id`, with the tasks that `tasksOf(...given)` of a module resolves to. Each contender
 * has its own, so that nobody pays for what another has loaded, and CPU is told apart.
 */
export function startMember(id, module, ...given) {
  // Without the setting, Google's client looks for the metadata server of a machine in its cloud.
  const env = { ...process.env, METADATA_SERVER_DETECTION: "none" };
  // JSON has no NaN, which stands for what a system does not tell.
  const options = { env, serialization: "advanced" };
  const child = fork(MEMBER, [String(module), JSON.stringify(given)], options);
  running.add(child);
  const ended = once(child, "exit");
  const waiting = new Map();
  let number = 0;
  child.on("message", ({ number, result, error }) => {
    const { resolve, reject } = waiting.get(number);
    waiting.delete(number);
    if (error === undefined) resolve(result);
    else reject(new Error(`${id}: ${error}`));
  });
  child.on("exit", (code, signal) => {
    running.delete(child);
    for (const { reject } of waiting.values()) reject(new Error(`${id} ended: ${code ?? signal}`));
    waiting.clear();
  });
  const ask = (task, options = {}) =>
    new Promise((resolve, reject) => {
      if (!child.connected) return reject(new Error(`${id} has ended`));
      number += 1;
      waiting.set(number, { resolve, reject });
      child.send({ number, task, options });
    });
  return {
    id,
    ask,
    async stop() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      await ask("close").catch(() => undefined);
      if (child.connected) child.disconnect();
      await ended;
    },
  };
}
