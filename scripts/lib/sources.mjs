// What cargo reads of a clone, and how old it is. Cargo builds again whatever is newer than what was built of it, and the files of a
// fresh clone are as new as the clone. So the cache remembers what each file was when cargo saw it last, and since when it was that:
// a file that is still the same gets that time back.

import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, join, relative } from "node:path";
import { cache, filesUnder, root, target } from "./paths.mjs";

const FOLDERS = [".cargo", "crates", "docs", "examples/rust-axum", "verify"];
const FILES = ["Cargo.toml", "Cargo.lock", "build.rs", "clippy.toml"];
const IGNORED = /[\\/](node_modules|\.vitepress|reference)[\\/]/;

/** Whether cargo reads the file, as git names it. */
export function isCargos(name) {
  return FILES.includes(name) || FOLDERS.some((folder) => name.startsWith(`${folder}/`));
}

let building;

/**
 * Runs a task that calls cargo, with the files of this clone prepared for it. Another clone that builds into the same folder waits
 * until it has ended. A task may use this again.
 */
export async function withSources(task) {
  if (building) return await task();
  building = true;
  const leave = await enter(target);
  try {
    // Other folders than the cache's are not only ours: what a file was when cargo saw it last is not known.
    if (target === join(cache, "target")) {
      const paths = FOLDERS.flatMap((name) => filesUnder(join(root, name)));
      ageSources({
        folder: root,
        paths: [
          ...paths.filter((path) => !IGNORED.test(path)),
          ...FILES.map((name) => join(root, name)),
        ],
        table: join(target, "sources.json"),
        stamp: join(root, "node_modules", ".syncguard-sources"),
      });
    }
    return await task();
  } finally {
    leave();
    building = false;
  }
}

/**
 * Gives each file the time since which it is what it is. What is not as the table has it is as new as this call, and so newer than
 * anything that was built before, even if it came with an older time: from another branch, or out of an archive.
 *
 * Without a table, files keep their times: cargo judges them itself. Where the stamp is, the clone was here before. A file whose time is not that of the table was written since, so cargo may have
 * read something else in between, and reads it again.
 */
export function ageSources({ folder, paths, table, stamp, nowMs = Date.now() }) {
  const known = existsSync(table) && JSON.parse(readFileSync(table, "utf8"));
  const wasHere = existsSync(stamp);
  const files = {};
  for (const path of paths) {
    const name = relative(folder, path);
    const digest = createHash("sha256").update(readFileSync(path)).digest("hex");
    const writtenMs = Math.round(statSync(path).mtimeMs);
    const before = known && known[name];
    const isSame = before?.digest === digest && (!wasHere || writtenMs === before.sinceMs);
    files[name] = isSame ? before : { digest, sinceMs: known ? nowMs : writtenMs };
    const since = files[name].sinceMs / 1000;
    if (writtenMs !== files[name].sinceMs) utimesSync(path, since, since);
  }
  mkdirSync(dirname(table), { recursive: true });
  // Before cargo runs: if it fails halfway, what it has built is newer than what it has read.
  writeFileSync(table, JSON.stringify(files));
  mkdirSync(dirname(stamp), { recursive: true });
  writeFileSync(stamp, "");
}

/**
 * Waits until no other process is in there, and resolves to what ends this one's turn. Linux gives the name back when a process ends,
 * however it does; elsewhere nobody waits.
 */
export async function enter(folder) {
  if (process.platform !== "linux") return () => {};
  const name = `\0syncguard-${createHash("sha256").update(folder).digest("hex")}`;
  for (let tries = 0; ; tries += 1) {
    const server = createServer();
    const error = await new Promise((resolve) => {
      server.once("error", resolve).listen(name, () => resolve(undefined));
    });
    if (error === undefined) {
      server.unref();
      return () => server.close();
    }
    if (error.code !== "EADDRINUSE") throw error;
    if (tries === 0) console.log("waiting: another clone is building");
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}
