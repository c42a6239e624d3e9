// The rooms of npm/syncguard, and what their functions may be: rules of ESLint, whose exceptions stand here alone.

import { readdirSync } from "node:fs";
import { join } from "node:path";
import { root } from "./paths.mjs";

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

/** The rules of ESLint that keep the doors of a room, but for `allowed`: for `import … from`, and for `import()` in code and in types. */
export function restrictions(room, allowed = []) {
  const closed = closedTo(room).filter((name) => !allowed.includes(name));
  const message = `${room}/ must not know that room: scripts/lib/rooms.mjs has their order`;
  const group = closed.map((name) => `**/${name}/**`);
  const paths = closed.map((name) => `/${name}/`);
  // The entry files stand above all rooms.
  if (room !== "cli") {
    group.push("../*.js");
    paths.push("^[.][.]/[\\w-]+[.]js$");
  }
  if (group.length === 0) return {};
  // A slash would end the pattern of a selector, a class of characters does not.
  const pattern = paths.join("|").replaceAll("/", "[/]");
  const literal = `Literal[value=/${pattern}/]`;
  return {
    "no-restricted-imports": ["error", { patterns: [{ group, message }] }],
    "no-restricted-syntax": [
      "error",
      { selector: `ImportExpression > ${literal}`, message },
      { selector: `TSImportType ${literal}`, message },
    ],
  };
}

/** The configurations of ESLint that keep the doors. */
export const doors = [
  ...ROOMS.map((room) => ({
    files: [`${ROOT}/${room}/**/*.ts`],
    rules: restrictions(room),
  })),
  ...Object.entries(IMPORT_EXCEPTIONS).map(([file, allowed]) => ({
    files: [`${ROOT}/${file}`],
    rules: restrictions(file.split("/")[0], allowed),
  })),
];

/** Fails when a folder of `npm/syncguard` is no room, because nothing would keep its doors. */
export function checkRooms() {
  const entries = readdirSync(join(root, ROOT), { withFileTypes: true });
  const folders = entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
  const faults = misfits(folders);
  if (faults.length > 0) throw new Error(faults.join("\n"));
  return `${ROOMS.length} rooms`;
}

/**
 * How the folders differ from the rooms, in words.
 *
 * @param {readonly string[]} folders
 * @returns {string[]}
 */
export function misfits(folders) {
  const unlisted = folders.filter((name) => !ROOMS.includes(name));
  const missing = ROOMS.filter((name) => !folders.includes(name));
  return [
    ...unlisted.map(
      (name) => `${ROOT}/${name} is no room: give it a place in scripts/lib/rooms.mjs`,
    ),
    ...missing.map((name) => `${ROOT}/${name} is a room and not there`),
  ];
}

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
