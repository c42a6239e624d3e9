// The Firestore emulator of this repository, built for speed.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { target } from "../../scripts/lib/paths.mjs";
import { must } from "../../scripts/lib/run.mjs";

/** Builds and starts it on a free port. */
export async function startServer() {
  const args = ["build", "--release", "--locked", "--package", "firestore-emulator"];
  await must("cargo", args, { quiet: true });
  const program = join(target, "release", "firestore-emulator");
  // The end of its input ends it, whatever happens to this process.
  const child = spawn(program, ["--orders"], { stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface(child.stdout);
  const failed = once(child, "error").then(([error]) => Promise.reject(error));
  const [host] = await Promise.race([once(lines, "line"), failed]);
  return {
    host,
    async stop() {
      const ended = once(child, "exit");
      child.stdin.end();
      await ended;
    },
  };
}
