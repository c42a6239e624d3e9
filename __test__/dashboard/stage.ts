/** What the tests of the dashboard's handler share: a backend for each test, and short forms of requests. */

import { join } from "node:path";
import type { SyncGuardBackend } from "syncguard";
import { createSqliteBackend } from "syncguard/sqlite";
import { afterAll, afterEach, beforeEach } from "vitest";
import { temporaryFolder } from "../support/temp";

const folder = temporaryFolder();
afterAll(() => folder.remove());

/** The backend of a test, which has a file of its own. */
export let backend: SyncGuardBackend;
let files = 0;
/** What a test has to end. */
export const ends: (() => unknown)[] = [];
beforeEach(() => {
  backend = createSqliteBackend(join(folder.path, `${(files += 1)}.db`));
  ends.push(() => backend.close());
});
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

export const HOME = "http://locks.example/admin/locks";
export const authorize = (): string => "ada";
export const OURS = { "sec-fetch-site": "same-origin" };

export const get = (query = "", headers: Record<string, string> = {}): Request =>
  new Request(HOME + query, { headers });
export const post = (headers: Record<string, string>): Request =>
  new Request(HOME, { method: "POST", headers });

export type Found = {
  rows: { key: string; lockIdHash: string }[];
  next: string | null;
  done?: unknown;
};

export async function found(
  dashboard: (request: Request) => Promise<Response>,
  headers: Record<string, string> = {},
): Promise<Found> {
  return (await (await dashboard(get("?locks", headers))).json()) as Found;
}

/** What a stream of events tells, as it comes. */
export async function* newsOf(response: Response): AsyncGenerator<Record<string, unknown>> {
  let text = "";
  for await (const part of response.body as unknown as AsyncIterable<Uint8Array>) {
    const pieces = (text + Buffer.from(part).toString()).split("\n\n");
    text = pieces.pop() ?? "";
    for (const piece of pieces) {
      const [, data] = /^data: (.*)$/m.exec(piece) ?? [];
      if (data !== undefined) yield JSON.parse(data) as Record<string, unknown>;
    }
  }
}
