/** `NODE_DEBUG=syncguard`. */

import { expect, test, vi } from "vitest";
import { run } from "../support/child";
import { temporaryFolder } from "../support/temp";

// Google's client alone takes seconds to load on a busy machine.
vi.setConfig({ testTimeout: 90_000 });

async function transports(env: Record<string, string>): Promise<string[]> {
  const { path, remove } = temporaryFolder();
  try {
    const { code, stderr } = await run("node", "transports.mjs", [], {
      XDG_STATE_HOME: path,
      ...env,
    });
    if (code !== 0) throw new Error(stderr);
    return stderr.split("\n").filter((line) => line !== "");
  } finally {
    remove();
  }
}

test("says which way each backend has to its server, and why; no values", async () => {
  const lines = await transports({ NODE_DEBUG: "syncguard" });
  const own = "a connection of its own, by the";
  const because = "through the client, because";
  expect(lines.map((line) => line.replace(/^SYNCGUARD \d+: /, ""))).toEqual([
    `Redis: ${own} URL or options that were given`,
    `Redis: ${own} settings read from the client`,
    `Redis: ${because} transport is "client"`,
    `Redis: ${because} a connection of its own cannot take over db of the client`,
    expect.stringMatching(
      `^Redis: ${because} a connection of its own cannot take over .+ of the client$`,
    ),
    `PostgreSQL: ${own} URL or options that were given`,
    `PostgreSQL: ${own} settings read from the client`,
    expect.stringMatching(
      `^PostgreSQL: ${because} a connection of its own cannot take over .+ of the client$`,
    ),
    `Firestore: ${own} URL or options that were given`,
    `Firestore: ${because} transport is "client"`,
    "default backend: an SQLite file of this user, because SYNCGUARD_URL is not set",
  ]);
  expect(lines.join()).not.toMatch(/secret|hunter2|ines/);
});

test("says nothing otherwise", async () => {
  expect(await transports({ NODE_DEBUG: "http" })).toEqual([]);
});
