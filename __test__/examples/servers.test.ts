/** The examples that serve: asked over HTTP, with a busy lock, and ended while a request holds one. */

import { expect, test, vi } from "vitest";
import { applied, register } from "../../examples/nextjs/instrumentation.js";
import { POST as route } from "../../examples/nextjs/app/api/reports/route.js";
import { PATIENCE_MS, post, startExample, urlOf } from "./example.js";
import { until } from "../support/until.js";

vi.setConfig({ testTimeout: PATIENCE_MS });

const FENCE = expect.stringMatching(/^\d{15}$/) as string;

test.concurrent("fastify: one withdrawal at a time, 503 for a busy account, SIGTERM", async () => {
  const example = startExample("fastify");
  const account = `${await urlOf(example)}/accounts/4711/withdrawals`;
  const many = await Promise.all(Array.from({ length: 5 }, () => post(account, { amount: 10 })));
  // Without the lock, each would have read 100.
  const balances = many.map(({ body }) => (body as { balance: number }).balance);
  expect(balances.sort((a, b) => a - b)).toEqual([50, 60, 70, 80, 90]);
  expect(await post(account, { amount: 60 })).toMatchObject({ status: 422 });

  const slow = post(account, { amount: 10, takesMs: 3_000 });
  await until(() => example.isLocked("account:4711"));
  expect(await post(account, { amount: 1 })).toEqual({
    status: 503,
    body: { error: "AcquisitionTimeout" },
  });
  const waiting = post(account, { amount: 1 });
  const other = post(account.replace("4711", "4712"), { amount: 1 });
  expect(await other).toMatchObject({ status: 200, body: { balance: 99 } });
  example.child.kill("SIGTERM");
  expect(await waiting).toEqual({ status: 503, body: { error: "Aborted" } });
  expect(await slow).toEqual({ status: 200, body: { balance: 40, fence: FENCE } });
  expect(await example.ended).toEqual({ code: 0, stderr: "" });
  expect(await example.isLocked("account:4711")).toBe(false);
});

test.concurrent("nestjs: a report at a time, 503 for a busy one, SIGTERM", async () => {
  const example = startExample("nestjs");
  const reports = `${await urlOf(example)}/reports`;
  expect(await post(`${reports}/2026-01`, {})).toEqual({
    status: 201,
    body: { month: "2026-01", fence: FENCE },
  });
  expect(await post(`${reports}/2026-01/mail`, {})).toEqual({
    status: 201,
    body: { month: "2026-01", fence: FENCE },
  });
  const slow = post(`${reports}/2026-01?takesMs=3000`, {});
  await until(() => example.isLocked("report:2026-01"));
  expect(await post(`${reports}/2026-02`, {})).toMatchObject({ status: 201 });
  const busy = { status: 503, body: { statusCode: 503, error: "AcquisitionTimeout" } };
  const refused = ["2026-01", "2026-01/mail"].map((path) => post(`${reports}/${path}`, {}));
  expect(await Promise.all(refused)).toEqual([busy, busy]);
  example.child.kill("SIGTERM");
  expect(await slow).toMatchObject({ status: 201 });
  await example.ended;
  expect(await example.isLocked("report:2026-01")).toBe(false);
});

test("nextjs: the route makes a report at a time, and ends with its client", async () => {
  const ask = (takesMs: number, signal?: AbortSignal): Promise<Response> => {
    const url = `http://127.0.0.1/api/reports?takesMs=${takesMs}`;
    return route(new Request(url, { method: "POST", ...(signal && { signal }) }));
  };
  const client = new AbortController();
  const first = ask(30_000, client.signal);
  await until(async () => (await ask(0)).status === 409);
  client.abort();
  expect((await first).status).toBe(499);
  const next = await ask(0);
  expect([next.status, await next.json()]).toEqual([200, { report: "done", fence: FENCE }]);
});

test("nextjs: instances that start together migrate once, and none in another runtime", async () => {
  await register();
  expect(applied).toEqual([]);
  vi.stubEnv("NEXT_RUNTIME", "nodejs");
  await Promise.all([register(), register(), register()]);
  expect(applied).toEqual(["001-accounts"]);
});
