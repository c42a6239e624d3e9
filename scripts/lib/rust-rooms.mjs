// Which room of a crate may use which: each uses those below it, none uses one above or beside it, and no store uses another.

import { join, relative } from "node:path";
import { rustImports } from "./circles.mjs";
import { root } from "./paths.mjs";

/**
 * The rooms of a crate, from the lowest floor up. What stands on one floor does not use each other. A name is a file without `.rs`, or a
 * folder; the longest one that fits counts. The stores stand beside each other and use what is at most as high as `highest`; only the
 * rooms in `users` use them.
 */
const CRATES = {
  "crates/syncguard/src": {
    floors: [
      ["clock", "mutex", "race", "text"],
      ["random"],
      ["values"],
      ["network"],
      ["asking"],
      ["heartbeats", "waiting"],
      ["background"],
      ["operation"],
      // Who waits calls the store, whose backend has the queues that are in the same folder.
      ["waiting/waiter"],
      ["holding"],
    ],
    stores: { names: ["firestore", "postgres", "redis", "sqlite"], highest: "background" },
  },
  "crates/syncguard-node/src": {
    floors: [
      ["mutex"],
      ["convert", "io_thread"],
      ["answers"],
      ["clients", "event_loop"],
      ["calls"],
      ["rules"],
    ],
    stores: {
      names: ["firestore", "postgres", "redis", "sqlite"],
      highest: "calls",
      users: ["rules"],
    },
  },
};

/** Fails when a file of one of these crates uses a room above it, or beside it. */
export function checkRustRooms() {
  const crates = Object.entries(CRATES);
  const wrong = crates.flatMap(([path, { floors, stores }]) => {
    const folder = join(root, path);
    return misplaced(rustImports(join(folder, "lib.rs")), folder, floors, stores);
  });
  if (wrong.length > 0) throw new Error(wrong.join("\n"));
  return crates.map(([path, { floors }]) => `${floors.length} floors of ${path}`).join(", ");
}

/**
 * What is wrong with the directions of imports, in words.
 *
 * @param {Map<string, Set<string>>} imports
 * @param {string} folder where `lib.rs` is, which may use everything
 * @param {string[][]} floors
 * @param {{ names: string[], highest: string, users?: string[] }} stores
 * @returns {string[]}
 */
export function misplaced(imports, folder, floors, stores) {
  const wrong = [];
  const named = (file) => relative(folder, file).replace(/(\/mod)?\.rs$/, "");
  const known = [...floors.flat(), ...stores.names].sort((a, b) => b.length - a.length);
  const roomOf = (name) => known.find((room) => name === room || name.startsWith(`${room}/`));
  const floorOf = (room) => floors.findIndex((rooms) => rooms.includes(room));
  const mayUse = (room, other) => {
    if (room === other) return true;
    if (stores.names.includes(other)) return stores.users?.includes(room) ?? false;
    if (stores.names.includes(room)) return floorOf(other) <= floorOf(stores.highest);
    return floorOf(other) < floorOf(room);
  };
  for (const [file, used] of imports) {
    const [name, room] = [named(file), roomOf(named(file))];
    if (name === "lib") continue;
    if (!room) wrong.push(`${name} is in no room`);
    for (const other of [...used].map(named)) {
      if (room && roomOf(other) && !mayUse(room, roomOf(other))) {
        wrong.push(`${name} (${room}) uses ${other} (${roomOf(other)}), which is not below it`);
      }
      if (other === "lib")
        wrong.push(`${name} uses the crate's index instead of the file that has the item`);
    }
  }
  return wrong;
}
