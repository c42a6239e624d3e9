// The library, broken on purpose: each mutation is a defect that somebody could write, and that the check of
// histories must find. What is not here cannot be seen by any client: docs/reliability/mutations.md.

import { faults } from "./mutations/faults.mjs";
import { firestore } from "./mutations/firestore.mjs";
import { gathering } from "./mutations/gathering.mjs";
import { postgres } from "./mutations/postgres.mjs";
import { readers } from "./mutations/readers.mjs";
import { cluster, redis } from "./mutations/redis.mjs";
import { shared } from "./mutations/shared.mjs";
import { sqlite } from "./mutations/sqlite.mjs";
import { together } from "./mutations/together.mjs";

export const mutations = [
  ...redis,
  ...cluster,
  ...postgres,
  ...sqlite,
  ...together,
  ...gathering,
  ...firestore,
  ...shared,
  ...readers,
  ...faults,
];

/** `text` with that edit. Its text must occur exactly once. */
export function edited(text, { file, find, replace }) {
  const parts = text.split(find);
  if (parts.length !== 2) {
    throw new Error(`${file}: the text of a mutation occurs ${parts.length - 1} times:\n${find}`);
  }
  return parts.join(replace);
}
