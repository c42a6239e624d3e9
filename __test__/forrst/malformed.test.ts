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

/** Options that are wrong, and the field that the error names. */
const options: [unknown, string][] = [
  [undefined, "options"],
  [null, "options"],
  [[], "options"],
  ["user:123", "options"],
  [() => ({ key, ttl }), "options"],
  [{ ttl }, "key"],
  [{ key: "", ttl }, "key"],
  [{ key: 7, ttl }, "key"],
  [{ key: { toString: () => key }, ttl }, "key"],
  [{ key: "x".repeat(492), ttl }, "key"],
  [{ key: "\u{1F512}".repeat(123), ttl }, "key"],
  [{ key: "a\0b", ttl }, "key"],
  [{ key }, "ttl"],
  [{ key, ttl: 30 }, "ttl"],
  [{ key, ttl: "30s" }, "ttl"],
  [{ key, ttl: [30, "second"] }, "ttl"],
  [{ key, ttl: { value: 30 } }, "ttl.unit"],
  [{ key, ttl: { value: 30, unit: "seconds" } }, "ttl.unit"],
  [{ key, ttl: { value: 30, unit: "week" } }, "ttl.unit"],
  [{ key, ttl: { value: 30, unit: "__proto__" } }, "ttl.unit"],
  [{ key, ttl: { unit: "second" } }, "ttl.value"],
  [{ key, ttl: { value: "30", unit: "second" } }, "ttl.value"],
  [{ key, ttl: { value: 0, unit: "second" } }, "ttl.value"],
  [{ key, ttl: { value: -30, unit: "second" } }, "ttl.value"],
  [{ key, ttl: { value: 1.5, unit: "second" } }, "ttl.value"],
  [{ key, ttl: { value: Number.NaN, unit: "second" } }, "ttl.value"],
  [{ key, ttl: { value: Number.POSITIVE_INFINITY, unit: "second" } }, "ttl.value"],
  [{ key, ttl: { value: 1e300, unit: "day" } }, "ttl.value"],
  [{ key, ttl: { value: 36_526, unit: "day" } }, "ttl.value"],
  [{ key, ttl: { value: 1, unit: "day", Unit: "hour" } }, "ttl.Unit"],
  [{ key, ttl, block: 5 }, "block"],
  [{ key, ttl, block: null }, "block"],
  [{ key, ttl, block: { value: -5, unit: "second" } }, "block.value"],
  [{ key, ttl, block: { value: 5, unit: "s" } }, "block.unit"],
  [{ key, ttl, block: { value: 2 ** 53, unit: "day" } }, "block.value"],
  [{ key, ttl, scope: "server" }, "scope"],
  [{ key, ttl, scope: 1 }, "scope"],
  [{ key, ttl, scope: null }, "scope"],
  [{ key, ttl, owner: "" }, "owner"],
  [{ key, ttl, owner: 7 }, "owner"],
  [{ key, ttl, owner: "x".repeat(256) }, "owner"],
  [{ key, ttl, owner: "\u{1F512}".repeat(64) }, "owner"],
  [{ key, ttl, auto_release: "no" }, "auto_release"],
  [{ key, ttl, auto_release: 0 }, "auto_release"],
  [{ key, ttl, autoRelease: false }, "autoRelease"],
  [{ key: "\ud800", ttl }, "options"],
];

/** Arguments of system functions that are wrong. */
const args: [unknown, string][] = [
  [undefined, "arguments"],
  [null, "arguments"],
  [["lock:a"], "arguments"],
  [{}, "key"],
  [{ key: 7 }, "key"],
  [{ key: "" }, "key"],
  [{ key: "lock:" }, "key"],
  [{ key }, "key"],
  [{ key: `lock:${"x".repeat(508)}` }, "key"],
];

onEveryStore("malformed input", (connect) => {
  test("is refused by name, and leaves no lock behind", async () => {
    const backend = connect();
    const { handle } = createAtomicLock(backend);
    for (const [wrong, field] of options) {
      const request = charge(wrong);
      const response = await handle(request, unreachable);
      expect(response).toMatchObject({
        protocol,
        id: "req_1",
        result: null,
        errors: [{ code: "INVALID_ARGUMENTS", details: { field } }],
      });
      const { message } = response.errors![0]!;
      if (!message.endsWith("has an unknown member")) expect(message).toContain(field);
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
      for (const [wrong, field] of args) {
        const response = await handle(system(name, wrong), unreachable);
        expect(response).toMatchObject({
          result: null,
          errors: [{ code: "INVALID_ARGUMENTS", details: { field } }],
        });
      }
    }
    for (const owner of [undefined, null, "", 7, "x".repeat(256)]) {
      const response = await handle(system(RELEASE, { key: "lock:a", owner }), unreachable);
      expect(response).toMatchObject({ errors: [{ details: { field: "owner" } }] });
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
