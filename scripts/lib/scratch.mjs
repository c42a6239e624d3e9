// Where the tests' servers keep their files: in memory where there is room, since making a PostgreSQL cluster on a disk takes twice as
// much of the processor.

import { chmodSync, mkdtempSync, readFileSync, readdirSync, rmSync, statfsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const MEMORY = "/dev/shm";
/** Four times what a run of all tests was seen to need. */
const ROOM_BYTES = 4 * 2 ** 30;
const NAME = /^syncguard-(\d+)-/;

/** Makes a folder for this process and what it starts, whose temporary files go there; it is removed with this process. */
export function useScratch(place = scratchPlace()) {
  removeLeft(place);
  const folder = mkdtempSync(join(place, `syncguard-${process.pid}-`));
  // PostgreSQL runs as another user.
  chmodSync(folder, 0o711);
  process.env.TMPDIR = folder;
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A user's TMPDIR wins. */
export function scratchPlace(env = process.env, memory = MEMORY) {
  return env.TMPDIR || !hasRoom(memory) ? tmpdir() : memory;
}

/** Programs are written there, too, so it must be allowed to run them. */
function hasRoom(memory) {
  try {
    const { bavail, bsize } = statfsSync(memory);
    const lines = readFileSync("/proc/mounts", "utf8").split("\n");
    const mount = lines.map((line) => line.split(" ")).find(([, at]) => at === memory);
    const [, , type, options = ""] = mount ?? [];
    const runs = !options.split(",").includes("noexec");
    return type === "tmpfs" && runs && bavail * bsize >= ROOM_BYTES;
  } catch {
    return false;
  }
}

/** What processes that were killed have left. */
function removeLeft(place) {
  for (const name of readdirSync(place)) {
    const pid = NAME.exec(name)?.[1];
    if (!pid || isAlive(Number(pid))) continue;
    try {
      rmSync(join(place, name), { recursive: true, force: true });
    } catch {
      // It is another user's.
    }
  }
}

export function isAlive(pid) {
  try {
    return process.kill(pid, 0);
  } catch ({ code }) {
    return code === "EPERM";
  }
}
