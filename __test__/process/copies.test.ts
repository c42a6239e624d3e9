/** Several copies of the package, several names of the file: nobody holds a lock beside another. */

import { cpSync, linkSync, mkdirSync, symlinkSync } from "node:fs";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { createSqliteBackend } from "syncguard/sqlite";
import { type Runtime, run, runtimes } from "../support/child";
import { lockError } from "../support/errors";
import { temporaryFolder } from "../support/temp";

const root = resolve(import.meta.dirname, "../..");
const KEY = "some:key";

/** Two folders, each with the whole built package in it. */
let installed: ReturnType<typeof temporaryFolder>;
let copies: [string, string];
beforeAll(() => {
  installed = temporaryFolder();
  const copy = (name: string): string => {
    const folder = join(installed.path, name);
    for (const part of ["package.json", "dist", "npm"]) {
      cpSync(join(root, part), join(folder, part), { recursive: true });
    }
    return folder;
  };
  copies = [copy("application"), copy("dependency")];
});
afterAll(() => {
  installed.remove();
});

/** A folder with `locks.db` to be, and other names that lead to it. */
function place() {
  const folder = temporaryFolder();
  onTestFinished(folder.remove);
  const data = join(folder.path, "data");
  mkdirSync(data);
  symlinkSync(data, join(folder.path, "linked-folder"));
  symlinkSync(join(data, "locks.db"), join(folder.path, "linked.db"));
  return {
    file: join(data, "locks.db"),
    linkedFile: join(folder.path, "linked.db"),
    inLinkedFolder: join(folder.path, "linked-folder", "locks.db"),
    hardLink: join(folder.path, "hard.db"),
  };
}

/** What the program `copies.cjs` saw. */
type Seen = {
  grants: number;
  fences: number;
  together: number;
  errors: string[];
  later: (boolean | string)[];
};

async function play(
  runtime: Runtime,
  mode: "together" | "threads",
  members: [folder: string, path: string][],
): Promise<Seen> {
  const { code, stdout, stderr } = await run(runtime, "copies.cjs", [mode, ...members.flat()]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  return JSON.parse(stdout) as Seen;
}

/** No two holders at once, no fence twice; and what the others said. */
function expectOneHolder(seen: Seen): void {
  expect(seen.grants).toBeGreaterThan(0);
  expect({ fences: seen.fences, together: seen.together }).toEqual({
    fences: seen.grants,
    together: 0,
  });
}

const MODES = [
  ["node", "together"],
  ["node", "threads"],
  ["bun", "together"],
] as const;

describe.each(MODES.filter(([runtime]) => runtimes.includes(runtime)))(
  "two copies of the package in one process (%s, %s)",
  (runtime, mode) => {
    test.each(["file", "linkedFile", "inLinkedFolder"] as const)(
      "the second is told so, and works once the first has closed (%s)",
      async (name) => {
        const names = place();
        const [application, dependency] = copies;
        const seen = await play(runtime, mode, [
          [application, names.file],
          [dependency, names[name]],
        ]);
        expectOneHolder(seen);
        expect(seen.errors).toEqual([
          expect.stringMatching(/^InvalidArgument: .*copy of SyncGuard.*path of its own/),
        ]);
        expect(seen.later).toEqual([true]);
      },
    );

    test("do not mind each other on different files", async () => {
      const [application, dependency] = copies;
      const seen = await play(runtime, mode, [
        [application, place().file],
        [dependency, place().file],
      ]);
      expect(seen).toMatchObject({ grants: 200, errors: [] });
    });
  },
);

test("threads that share one copy exclude each other, whatever they call the file", async () => {
  const { file, linkedFile, inLinkedFolder } = place();
  const [copy] = copies;
  const seen = await play("node", "threads", [
    [copy, file],
    [copy, linkedFile],
    [copy, inLinkedFolder],
  ]);
  expectOneHolder(seen);
  expect(seen).toMatchObject({ errors: [], later: [true, true] });
});

describe("a hard link", () => {
  test("is refused, in this process and in others", async () => {
    const { file, hardLink } = place();
    const first = createSqliteBackend(file);
    const held = await first.lock(KEY);
    linkSync(file, hardLink);
    const refusal = /another name.*hard link/;
    for (const path of [hardLink, file]) {
      const seen = await run("node", "use-and-end.mjs", [path]);
      expect(seen.code).not.toBe(0);
      expect(seen.stderr).toMatch(refusal);
    }
    const second = createSqliteBackend(hardLink);
    const error = await lockError(second.acquire({ key: KEY, ttlMs: 5_000 }));
    expect(error.code).toBe("InvalidArgument");
    expect(error.message).toMatch(refusal);
    // Whoever had it open before learns of it too.
    expect((await lockError(held.release())).message).toMatch(refusal);
  });
});
