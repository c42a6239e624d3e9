import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { createAtomicLock, type ForrstRequest } from "syncguard/forrst";
import { onEveryStore } from "../support/suite";
import {
  charge,
  codes,
  FORCE_RELEASE,
  protocol,
  RELEASE,
  STATUS,
  succeed,
  system,
  ttl,
  unreachable,
  URN,
  fullKey,
} from "./requests";

const key = "malformed:1";

type Case = { input: unknown; field: string; message: string };
/** What the core's own tests refuse as well. */
const table = JSON.parse(
  readFileSync(
    new URL("../../crates/syncguard-forrst/tests/malformed.json", import.meta.url),
    "utf8",
  ),
) as { options: Case[]; arguments: Case[]; owners: Case[] };

const noObject = { field: "options", message: "options must be an object" };
const noNumber = { field: "ttl.value", message: "ttl.value must be a positive whole number" };
const noOwner = { field: "owner", message: "owner must be a string of 1 to 255 bytes" };
const tooLong = { field: "key", message: "key is too long: with its prefix it may have 512 bytes" };

/** Options that JSON has no words for, or not those lengths. */
const options: Case[] = [
  ...table.options,
  { input: undefined, ...noObject },
  { input: () => ({ key, ttl }), ...noObject },
  {
    input: { key: { toString: () => key }, ttl },
    field: "key",
    message: "key must be a non-empty string",
  },
  { input: { key: "x".repeat(492), ttl }, ...tooLong },
  { input: { key: "\u{1F512}".repeat(123), ttl }, ...tooLong },
  { input: { key, ttl: { value: Number.NaN, unit: "second" } }, ...noNumber },
  { input: { key, ttl: { value: Number.POSITIVE_INFINITY, unit: "second" } }, ...noNumber },
  { input: { key, ttl, owner: "x".repeat(256) }, ...noOwner },
  { input: { key, ttl, owner: "\u{1F512}".repeat(64) }, ...noOwner },
  { input: { key: "\ud800", ttl }, field: "options", message: "options must be Unicode JSON" },
];

/** The same of arguments of system functions. */
const args: Case[] = [
  ...table.arguments,
  { input: undefined, field: "arguments", message: "arguments must be an object" },
  { input: { key: `lock:${"x".repeat(508)}` }, ...tooLong },
];

onEveryStore("malformed input", (connect) => {
  test("is refused by name, and leaves no lock behind", async () => {
    const backend = connect();
    const { handle } = createAtomicLock(backend);
    for (const { input, field, message } of options) {
      const response = await handle(charge(input), unreachable);
      expect(response).toEqual({
        protocol,
        id: "req_1",
        result: null,
        errors: [{ code: "INVALID_ARGUMENTS", message, details: { field } }],
      });
    }
    for (const full of [fullKey(key), `lock:${key}`]) {
      expect(await backend.isLocked({ key: full })).toBe(false);
    }
  });

  test("of system functions is refused by name, and frees no lock", async () => {
    const backend = connect();
    const { handle } = createAtomicLock(backend, { authorize: () => true });
    // Not the extension's: its functions must not reach it.
    const held = await backend.lock(key);
    for (const name of [RELEASE, FORCE_RELEASE, STATUS]) {
      const cases = name === RELEASE ? [...args, ...table.owners] : args;
      for (const { input, field, message } of cases) {
        const response = await handle(system(name, input), unreachable);
        expect(response).toMatchObject({
          result: null,
          errors: [{ code: "INVALID_ARGUMENTS", message, details: { field } }],
        });
      }
    }
    expect(await held.release()).toEqual({ ok: true });
  });
});

onEveryStore("a malformed request", (connect) => {
  test("is refused where it might mean a lock", async () => {
    const { handle } = createAtomicLock(connect());
    const own = { urn: URN, options: { key, ttl } };
    const call = { function: "f" };
    const requests: [unknown, string][] = [
      [{ call, extensions: own }, "extensions"],
      [{ call, extensions: URN }, "extensions"],
      [{ call, extensions: [own, own] }, "extensions"],
      [{ extensions: [own] }, "call.function"],
      [{ call: null, extensions: [own] }, "call.function"],
      [{ call: { function: "" }, extensions: [own] }, "call.function"],
      [{ call: { function: 7 }, extensions: [own] }, "call.function"],
    ];
    for (const [request, field] of requests) {
      const response = await handle(request as ForrstRequest, unreachable);
      expect(codes(response)).toEqual(["INVALID_REQUEST"]);
      expect(response.errors?.[0]?.details).toEqual({ field });
    }
    // What other extensions send is their business.
    const strange = [null, 7, "text", { urn: 7 }, { urn: "urn:forrst:ext:other" }];
    const passed = { call, extensions: strange } as unknown as ForrstRequest;
    expect(await handle(passed, succeed)).toMatchObject({ result: { status: "succeeded" } });
  });
});
