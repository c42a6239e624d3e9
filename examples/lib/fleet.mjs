// Stands in for several machines: starts processes that share a folder, and shows what they print.

import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/**
 * Starts a process of `script` for each name, with the name and a folder as its arguments. Their locks are in that folder
 * unless `SYNCGUARD_URL` says otherwise. `prepare(folder)` runs before, and `onLine(name, line, child)` hears what they
 * print.
 */
export function startFleet(script, names, { prepare = () => {}, onLine = () => {} } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "syncguard-example-"));
  prepare(folder);
  const env = { SYNCGUARD_URL: `sqlite://${folder}/locks.db`, ...process.env };
  const children = names.map((name) => {
    const child = fork(script, [name, folder], {
      env,
      stdio: ["ignore", "pipe", "inherit", "ipc"],
    });
    let text = "";
    child.stdout.setEncoding("utf8").on("data", (part) => {
      const lines = (text + part).split("\n");
      text = lines.pop();
      for (const line of lines) {
        console.log(`${name}: ${line}`);
        onLine(name, line, child);
      }
    });
    return child;
  });
  const stop = () => children.forEach((child) => child.kill("SIGTERM"));
  process.once("SIGTERM", stop).once("SIGINT", stop);
  return {
    folder,
    /** Resolves to the exit codes, or the signals, once all have ended. */
    ended: Promise.all(
      children.map(async (child) => (await once(child, "close")).find((part) => part !== null)),
    ),
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}
