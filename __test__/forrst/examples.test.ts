// Every JSON example of the extension's specification: the same members, in the same order.

import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import {
  type AtomicLock,
  createAtomicLock,
  type ForrstRequest,
  type ForrstResponse,
} from "syncguard/forrst";
import { onEveryStore } from "../support/suite";
import { FORCE_RELEASE, ownerOf, protocol, RELEASE, STATUS, system, unreachable } from "./requests";

const UUID = /[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}/g;
const DATE = /"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"/g;
const owner = "550e8400-e29b-41d4-a716-446655440000";

const autoRelease: ForrstRequest = {
  protocol,
  id: "req_001",
  call: {
    function: "payments.charge",
    version: "1.0.0",
    arguments: { user_id: "user_123", amount: 100 },
  },
  extensions: [
    {
      urn: "urn:forrst:ext:atomicLock",
      options: { key: "user:123", ttl: { value: 30, unit: "second" } },
    },
  ],
};
const manualRelease: ForrstRequest = {
  protocol,
  id: "req_002",
  call: {
    function: "billing.generateReport",
    version: "1.0.0",
    arguments: { month: "2024-03" },
  },
  extensions: [
    {
      urn: "urn:forrst:ext:atomicLock",
      options: {
        key: "billing:report",
        ttl: { value: 1, unit: "hour" },
        scope: "global",
        block: { value: 5, unit: "second" },
        auto_release: false,
      },
    },
  ],
};

type Next = (request: ForrstRequest) => ForrstResponse | Promise<ForrstResponse>;

onEveryStore("the examples of the specification", (connect) => {
  /** Serves under keys that no other test uses, and shows the examples' keys, date and UUID. */
  function server() {
    const tag = `:${randomUUID().replaceAll("-", "")}`;
    const lock: AtomicLock = createAtomicLock(connect(), { authorize: () => true });
    const withTag = (request: ForrstRequest): ForrstRequest =>
      JSON.parse(
        JSON.stringify(request).replaceAll(/(?<=(user:123|billing:report))(?=")/g, tag),
      ) as ForrstRequest;
    return {
      serve: async (request: ForrstRequest, next: Next = charged) => {
        const response = await lock.handle(withTag(request), next);
        const text = JSON.stringify(response).replaceAll(tag, "");
        const dates = text.replaceAll(DATE, '"2024-03-15T10:30:30Z"');
        return { response, text: dates.replaceAll(UUID, owner) };
      },
    };
  }
  const charged = ({ protocol, id }: ForrstRequest) => ({
    protocol,
    id,
    result: { charge_id: "ch_abc", status: "succeeded" },
  });

  test("a lock that is released by itself", async () => {
    const { serve } = server();
    const { text } = await serve(autoRelease);
    expect(text).toBe(
      JSON.stringify({
        protocol: { name: "forrst", version: "0.1.0" },
        id: "req_001",
        result: { charge_id: "ch_abc", status: "succeeded" },
        extensions: [
          {
            urn: "urn:forrst:ext:atomicLock",
            data: {
              key: "user:123",
              acquired: true,
              owner: "550e8400-e29b-41d4-a716-446655440000",
              scope: "function",
              expires_at: "2024-03-15T10:30:30Z",
            },
          },
        ],
      }),
    );
    expect((await serve(autoRelease)).text).toBe(text);
  });

  test("a lock that cannot be had", async () => {
    const { serve } = server();
    let inner = "";
    await serve(autoRelease, async (request) => {
      inner = (await serve({ ...autoRelease, id: "req_003" }, unreachable)).text;
      return charged(request);
    });
    expect(inner).toBe(
      JSON.stringify({
        protocol: { name: "forrst", version: "0.1.0" },
        id: "req_003",
        result: null,
        errors: [
          {
            code: "LOCK_ACQUISITION_FAILED",
            message: "Unable to acquire lock",
            details: {
              key: "user:123",
              scope: "function",
              full_key: "lock:payments.charge:user:123",
            },
          },
        ],
        extensions: [
          { urn: "urn:forrst:ext:atomicLock", data: { key: "user:123", acquired: false } },
        ],
      }),
    );
  });

  test("waiting for a lock, keeping it and releasing it", async () => {
    const { serve } = server();
    const kept = await serve(manualRelease);
    expect(kept.text).toContain(
      `"data":{"key":"billing:report","acquired":true,"owner":"${owner}","scope":"global",` +
        '"expires_at":"2024-03-15T10:30:30Z"}',
    );

    const blocked = structuredClone(manualRelease);
    const { options } = blocked.extensions![0] as { options: { block: unknown } };
    options.block = { value: 1, unit: "second" };
    const { text } = await serve({ ...blocked, id: "req_004" }, unreachable);
    expect(text).toBe(
      JSON.stringify({
        protocol: { name: "forrst", version: "0.1.0" },
        id: "req_004",
        result: null,
        errors: [
          {
            code: "LOCK_TIMEOUT",
            message: "Lock acquisition timed out after 1 second",
            details: {
              key: "billing:report",
              scope: "global",
              full_key: "lock:billing:report",
              waited: { value: 1, unit: "second" },
            },
          },
        ],
      }),
    );

    const release = (by: string) => ({
      protocol,
      id: "req_release",
      call: {
        function: RELEASE,
        version: "1.0.0",
        arguments: { key: "lock:billing:report", owner: by },
      },
    });
    expect((await serve(release("another"), unreachable)).text).toBe(
      JSON.stringify({
        protocol: { name: "forrst", version: "0.1.0" },
        id: "req_release",
        result: null,
        errors: [
          {
            code: "LOCK_OWNERSHIP_MISMATCH",
            message: "Lock is owned by a different process",
            details: { key: "lock:billing:report" },
          },
        ],
      }),
    );
    const released = await serve(release(ownerOf(kept.response)), unreachable);
    expect(released.text).toBe(
      JSON.stringify({
        protocol,
        id: "req_release",
        result: { released: true, key: "lock:billing:report" },
      }),
    );
    expect((await serve(release(owner), unreachable)).text).toContain('"code":"LOCK_NOT_FOUND"');
  });

  test("the status of a lock, and a forced release", async () => {
    const { serve } = server();
    const key = "lock:payments.charge:user:123";
    const status = system(STATUS, { key });
    const free = JSON.stringify({ protocol, id: "req_2", result: { key, locked: false } });
    expect((await serve(status, unreachable)).text).toBe(free);

    const keeping = structuredClone(autoRelease);
    Object.assign((keeping.extensions![0] as { options: object }).options, {
      ttl: { value: 30, unit: "minute" },
      owner: "uuid-abc-123",
      auto_release: false,
    });
    await serve(keeping);
    const { response, text } = await serve(status, unreachable);
    expect(text.replace(/(?<="ttl_remaining":)1(800|79\d)(?=\})/, "1200")).toBe(
      JSON.stringify({
        protocol,
        id: "req_2",
        result: {
          key: "lock:payments.charge:user:123",
          locked: true,
          owner: "uuid-abc-123",
          acquired_at: "2024-03-15T10:30:30Z",
          expires_at: "2024-03-15T10:30:30Z",
          ttl_remaining: 1200,
        },
      }),
    );
    const { acquired_at, expires_at } = response.result as Record<string, string>;
    expect(Date.parse(expires_at!) - Date.parse(acquired_at!)).toBe(30 * 60_000);

    const force = system(FORCE_RELEASE, { key });
    expect((await serve(force, unreachable)).text).toBe(
      JSON.stringify({ protocol, id: "req_2", result: { released: true, key, forced: true } }),
    );
    expect((await serve(force, unreachable)).text).toContain('"code":"LOCK_NOT_FOUND"');
    expect((await serve(status, unreachable)).text).toBe(free);
  });

  test("one key for many functions", async () => {
    const { serve } = server();
    const options = {
      key: "billing:report",
      scope: "global",
      ttl: { value: 1, unit: "hour" },
    };
    const call = (name: string): ForrstRequest => ({
      protocol,
      id: name,
      call: { function: name, version: "1.0.0" },
      extensions: [{ urn: "urn:forrst:ext:atomicLock", options }],
    });
    let other = "";
    await serve(call("billing.charge"), async (request) => {
      other = (await serve(call("billing.close"), unreachable)).text;
      return charged(request);
    });
    expect(other).toContain('"full_key":"lock:billing:report"');
    expect((await serve(call("billing.close"))).text).toContain('"acquired":true');
  });
});
