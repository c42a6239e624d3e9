// How a mutation is written.

const CORE = "crates/syncguard/src";
const TROUBLE = ["stop", "kill"];

/** What runs do not show, because it takes an entry of another writer or a rare moment: a test of the core that must fail. */
export function tested(suite, test, mutation) {
  return { ...mutation, store: `test ${suite}`, test: { suite, name: test }, trouble: [] };
}

/** `edits`: in which file of the core which text, which occurs exactly once, becomes which. */
export function mutation(name, store, breaks, edits, trouble = TROUBLE) {
  const inCore = edits.map(([file, find, replace]) => ({
    file: `${CORE}/${file}`,
    find,
    replace,
  }));
  return { name, store, breaks, edits: inCore, trouble };
}

// With the time in it, a fence that is not counted is repeated only within a millisecond.
export const SQLITE_WITHOUT_TIME = [
  "asking/granting.rs",
  "Fence::after(lock.counter, now_ms)",
  "Fence::after(lock.counter, 0)",
];
