/** `syncguard dashboard`: what it serves, and to whom. */

import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { createSqliteBackend } from "syncguard/sqlite";
import { afterAll, expect, it, onTestFinished } from "vitest";
import { cli, json, startCli } from "../support/cli";
import { temporaryFolder } from "../support/temp";

const folder = temporaryFolder();
afterAll(() => folder.remove());
const path = join(folder.path, "locks.db");
const url = `sqlite://${path}`;

it("shows what list shows, on loopback, until SIGTERM", async () => {
  const backend = createSqliteBackend(path);
  onTestFinished(() => backend.close());
  await backend.lock("job", { ttlMs: 60_000, owner: "me" });
  await backend.lock({ key: "api", slots: 3 }, { ttlMs: 60_000 });
  const { child, finished, printed, stdout } = startCli(url, "dashboard", "--port", "0", "--json");
  await printed("}");
  const { url: page } = JSON.parse(stdout()) as { url: string };
  expect(page).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/$/);
  expect(await (await fetch(page)).text()).toContain("<title>Locks</title>");
  const { rows } = (await (await fetch(`${page}?locks`)).json()) as { rows: object[] };
  const { locks } = (await json(0, url, "list")) as { locks: object[] };
  // What goes by is not the same.
  const expiresInMs = expect.any(Number) as unknown;
  expect(rows).toEqual(locks.map((lock) => ({ ...lock, expiresInMs })));
  const headers = {
    "sec-fetch-site": "same-origin",
    "syncguard-do": "clear",
    "syncguard-key": "k",
  };
  expect((await fetch(page, { method: "POST", headers })).status).toBe(403);
  // A page that is open does not keep it.
  await fetch(`${page}?events`);
  child.kill("SIGTERM");
  expect(await finished).toMatchObject({ code: 0, stderr: "" });
});

it("says so if the port is taken", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  onTestFinished(() => void server.close());
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const { code, stderr } = await cli(url, "dashboard", "--port", String(port));
  expect({ code, stderr }).toEqual({
    code: 69,
    stderr: expect.stringContaining("cannot listen on port") as unknown,
  });
});
