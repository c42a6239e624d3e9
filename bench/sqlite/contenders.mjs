// Who takes part: it has `pair(index)`, which takes and releases a lock of its own.

import { built } from "../lib/built.mjs";
import { pairOf } from "../lib/pair.mjs";

export const open = {
  syncguard({ from, path }) {
    return { pair: pairOf(built(from, "syncguard/sqlite").createSqliteBackend(path)) };
  },
};
