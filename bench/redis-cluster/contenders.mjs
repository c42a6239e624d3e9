// Who takes part: each has `pair(index)`, which takes and releases a lock of its own.

import { createHash } from "node:crypto";
import { Cluster } from "ioredis";
import { pairOf } from "../lib/pair.mjs";
import { open as onServer, handWrittenLibrary, PREFIX } from "../redis/contenders.mjs";

/** `address` is that of a cluster, or of a server. */
export const open = {
  syncguard: onServer.syncguard,

  /** The same two scripts, sent by hand: the least that a program on ioredis does. */
  ioredis({ address }) {
    const library = handWrittenLibrary(new Cluster(address.nodes), PREFIX, startsOfShards());
    return { pair: pairOf(library) };
  },
};

/** What the names of a lock begin with: docs/format.md, "Redis Cluster". Kept, as nobody would hash a key twice. */
function startsOfShards() {
  const starts = new Map();
  return (key) => {
    let start = starts.get(key);
    if (start === undefined) {
      const hash = createHash("sha256").update(`${PREFIX}:${key}`).digest("hex");
      start = `{${PREFIX}:${hash.slice(0, 2)}}`;
      starts.set(key, start);
    }
    return start;
  };
}
