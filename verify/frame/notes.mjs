// What processes note down, line by line, at the moment when it happens: each may be killed at any other.

import { mkdtempSync, openSync, readFileSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Milliseconds of a clock that all processes of the machine share, and that nobody can set. */
export function nowMs() {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** A function that notes an event, and more of it, for `member`. */
export function noteTo(file, member) {
  const log = openSync(file, "a");
  return (event, more = {}) =>
    writeSync(log, `${JSON.stringify({ atMs: nowMs(), member, event, ...more })}\n`);
}

/** What all have noted so far, in the order of time. */
export function notesIn(file) {
  const lines = readFileSync(file, "utf8").split("\n").filter(Boolean);
  return lines.map((line) => JSON.parse(line)).sort((a, b) => a.atMs - b.atMs);
}

/** A file for notes, which is empty at first; and what removes it. */
export function notesFile() {
  const folder = mkdtempSync(join(tmpdir(), "syncguard-notes-"));
  const file = join(folder, "notes");
  writeFileSync(file, "");
  return { file, remove: () => rmSync(folder, { recursive: true, force: true }) };
}
