// The rooms of npm/syncguard, and what their functions may be: rules of ESLint, whose exceptions stand here alone.

/** From the lowest on: a room imports from those before it, and never from one that comes later. */
const SHARED = ["native", "options", "values", "watching", "holding", "waiting", "backend"];
/** Each by itself: none imports from another. */
const STORES = ["redis", "postgres", "firestore", "sqlite", "testing"];
/** What is built on backends of any store, and what chooses a store. */
const OVER_STORES = [
  ...["otel", "default", "redlock", "forrst"],
  ...["inspection", "dashboard", "cli"],
];

/** Imports that go up or across. This list only gets shorter: a test fails for what is not needed. */
export const IMPORT_EXCEPTIONS = {
  // What the handles of each store can do beside the rest is chosen by the backend's capabilities, as a type.
  "values/handles.ts": ["redis", "postgres", "firestore"],
};

/** The rooms that a file of this room must not import from. */
export function closedTo(room) {
  const floors = [...SHARED.map((name) => [name]), STORES, ...OVER_STORES.map((name) => [name])];
  const floor = floors.findIndex((names) => names.includes(room));
  return floors
    .slice(floor)
    .flat()
    .filter((name) => name !== room);
}

const ROOT = "npm/syncguard";
const ROOMS = [...SHARED, ...STORES, ...OVER_STORES];

/** What ESLint's `no-restricted-imports` is to refuse in a room, but for `allowed`. */
export function restrictions(room, allowed = []) {
  const group = closedTo(room)
    .filter((name) => !allowed.includes(name))
    .map((name) => `**/${name}/**`);
  const message = `${room}/ must not know that room: scripts/lib/rooms.mjs has their order`;
  // The entry files stand above all rooms.
  const entries = room === "cli" ? [] : ["../*.js"];
  const all = [...group, ...entries];
  return all.length === 0 ? "off" : ["error", { patterns: [{ group: all, message }] }];
}

/** The configurations of ESLint that keep the doors. */
export const doors = [
  ...ROOMS.map((room) => ({
    files: [`${ROOT}/${room}/**/*.ts`],
    rules: { "no-restricted-imports": restrictions(room) },
  })),
  ...Object.entries(IMPORT_EXCEPTIONS).map(([file, allowed]) => ({
    files: [`${ROOT}/${file}`],
    rules: { "no-restricted-imports": restrictions(file.split("/")[0], allowed) },
  })),
];

const LIMITS = {
  "max-params": ["error", 5],
  "max-lines-per-function": ["error", { max: 70, skipComments: true, skipBlankLines: true }],
  complexity: ["error", 15],
};

/** Files with a function that breaks a limit, and which one. This list only gets shorter: a test fails for what is not needed. */
export const LIMIT_EXCEPTIONS = {
  // The constructor of redlock's lock, as its users call it.
  "redlock/redlock.ts": ["max-params"],
};

/** The configurations of ESLint that keep the limits. */
export const limits = [
  { files: [`${ROOT}/**/*.ts`], rules: LIMITS },
  ...Object.entries(LIMIT_EXCEPTIONS).map(([file, rules]) => ({
    files: [`${ROOT}/${file}`],
    rules: Object.fromEntries(rules.map((rule) => [rule, "off"])),
  })),
];
