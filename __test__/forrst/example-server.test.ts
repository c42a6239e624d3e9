// The example server, asked what its README asks it.

import { once } from "node:events";
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Supervised, startSupervised } from "../support/supervised";
import { temporaryFolder } from "../support/temp";

const example = fileURLToPath(new URL("../../examples/forrst-server/", import.meta.url));
const readme = readFileSync(join(example, "README.md"), "utf8");
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const DATE = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/;

type Exchange = {
  heading: string;
  headers: Record<string, string>;
  body: string;
  expected: string;
};

/** Each curl line, and the answer below it. */
const exchanges: Exchange[] = readme.split(/^## /m).flatMap((section) => {
  const [, curl, expected] =
    /```sh\ncurl -s http:\/\/127\.0\.0\.1:8080 (.*?)\n```\n\n```json\n(.*?)\n```/s.exec(section) ??
    [];
  if (curl === undefined || expected === undefined) return [];
  const header = /-H '([\w-]+): ([^']+)'/.exec(curl);
  return {
    heading: section.split("\n")[0] ?? "",
    headers: header === null ? {} : { [header[1] ?? ""]: header[2] ?? "" },
    body: /-d '(.*)'$/s.exec(curl)?.[1] ?? "",
    expected,
  };
});

const folder = temporaryFolder();
let server: Supervised;
let url = "";
beforeAll(async () => {
  const log = join(folder.path, "log");
  const settings = ["PORT=0", "ADMIN_TOKEN=secret", "SYNCGUARD_URL=:memory:"];
  const command = ["env", ...settings, process.execPath, `${example}server.mjs`];
  server = await startSupervised(command, "TERM", log, () => {
    url = /listening on (\S+)/.exec(readFileSync(log, "utf8"))?.[1] ?? "";
    return url !== "";
  });
});
afterAll(async () => {
  await server.stop();
  folder.remove();
});

async function ask(body: string, headers: Record<string, string> = {}) {
  const response = await fetch(url, { method: "POST", body, headers });
  return { status: response.status, text: await response.text() };
}

/** With the dates, owners and fences of the README where there are others. */
function normalise(text: string): string {
  return JSON.stringify(JSON.parse(text), (name, value: unknown) => {
    if (name === "owner" && UUID.test(String(value))) return "owner";
    if (name === "fence" && /^\d{15}$/.test(String(value))) return "fence";
    if (/_at$/.test(name) && DATE.test(String(value))) return "date";
    if (name === "ttl_remaining" && Number.isInteger(value)) return "seconds";
    return value;
  });
}

test("its README has an exchange for each example of the specification", () => {
  expect(exchanges.map(({ heading }) => heading)).toEqual([
    "A lock that is released by itself",
    "A lock that is kept",
    "Lock acquisition failed",
    "Lock timeout",
    "The status of a lock",
    "Lock ownership mismatch",
    "Releasing a lock",
    "A lock that is not there",
    "Forcing a release",
  ]);
});

test("it answers as its README says", async () => {
  for (const { headers, body, expected } of exchanges) {
    const { status, text } = await ask(body, headers);
    expect(normalise(text)).toBe(normalise(expected));
    expect(status).toBe(200);
  }
});

test("it lets nobody but its administrator force a release", async () => {
  const force = exchanges.at(-1)?.body ?? "";
  for (const headers of [{}, { authorization: "Bearer wrong" }]) {
    expect(JSON.parse((await ask(force, headers)).text)).toMatchObject({
      result: null,
      errors: [{ code: "FORBIDDEN" }],
    });
  }
});

test("it answers what it does not know", async () => {
  expect(await ask("{")).toMatchObject({ status: 400 });
  const unknown = await ask(JSON.stringify({ id: 1, call: { function: "constructor" } }));
  expect(JSON.parse(unknown.text)).toMatchObject({ errors: [{ code: "FUNCTION_NOT_FOUND" }] });
  for (const body of ["null", "[]", "7"]) expect(await ask(body)).toMatchObject({ status: 400 });
});

test("a client that goes away waits no longer", async () => {
  const keep = exchanges[1]?.body.replaceAll("billing:report", "abandoned") ?? "";
  await ask(keep);
  const waiting = keep.replace('"value": 5', '"value": 60');
  const client = connect({ port: Number(new URL(url).port), host: "127.0.0.1" });
  const length = Buffer.byteLength(waiting);
  client.end(`POST / HTTP/1.1\r\nHost: test\r\nContent-Length: ${length}\r\n\r\n${waiting}`);
  client.resume();
  // The server has noticed by then.
  await once(client, "close");
  const release = exchanges[6]?.body.replaceAll("billing:report", "abandoned") ?? "";
  expect(JSON.parse((await ask(release)).text)).toMatchObject({ result: { released: true } });
  // Nobody takes it for the client that is gone.
  const status = exchanges[4]?.body.replaceAll("billing:report", "abandoned") ?? "";
  expect(JSON.parse((await ask(status)).text)).toMatchObject({ result: { locked: false } });
});
