/** Contention, conflicts and lost replies, against an emulator that is told to fail. */

import type { Firestore } from "@google-cloud/firestore";
import { setTimeout as sleep } from "node:timers/promises";
import {
  afterAll,
  afterEach,
  beforeEach,
  describe,
  expect,
  onTestFinished,
  test,
  vi,
} from "vitest";
import { lock, type LockErrorCode } from "syncguard";
import { createFirestoreBackend, type FirestoreBackendOptions } from "syncguard/firestore";
import { formatFence } from "syncguard/common";
import { lockError } from "../support/errors";
import { type Emulator, googleClient, newProject, startEmulator } from "../support/firestore";
import { type Backend, newKey, take } from "../support/suite";
import { until } from "../support/until";

const projectId = newProject();
// New ones for each test: what a client still sends after its test counts, and takes a fault, nowhere else.
let emulator: Emulator;
let db: Firestore;
const used: { emulator: Emulator; db: Firestore }[] = [];
beforeEach(async () => {
  emulator = await startEmulator();
  // Not that of the environment: only our own takes orders.
  vi.stubEnv("FIRESTORE_EMULATOR_HOST", "");
  db = googleClient(emulator.host, projectId);
  used.push({ emulator, db });
});
afterEach(async () => {
  await emulator.setFaults();
});
afterAll(async () => {
  for (const { emulator, db } of used) {
    await emulator.stop();
    // It would wait for the replies that were lost.
    void db.terminate().catch(() => undefined);
  }
});

function connect(options: FirestoreBackendOptions): Backend {
  const backend = createFirestoreBackend(db, options);
  onTestFinished(() => backend.close());
  return backend;
}

/** A counter that is ahead of every clock: from there on, fences are counted one by one. */
const AHEAD = 10_000_000_000_000;
const countFrom = async (key: string, number: number) => {
  const counter = db.collection("fence_counters").doc(`fence:${key}`);
  await counter.set({ fence: formatFence(number), keyDebug: key });
};

const stored = async (key: string) => (await db.collection("locks").doc(key).get()).data();

describe("eight clients", () => {
  test("race for one key in 20 rounds: one wins each, nobody waits long", async () => {
    const clients = Array.from({ length: 8 }, () => {
      // One connection each.
      const backend = createFirestoreBackend({ projectId, emulatorHost: emulator.host });
      onTestFinished(() => backend.close());
      return backend;
    });
    const key = newKey();
    let longestMs = 0;
    await countFrom(key, AHEAD);
    for (let round = 1; round <= 20; round += 1) {
      const results = await Promise.all(
        clients.map(async (backend) => {
          const start = performance.now();
          const result = await backend.acquire({ key, ttlMs: 30_000 });
          longestMs = Math.max(longestMs, performance.now() - start);
          return result;
        }),
      );
      const winners = results.filter((result) => result.ok);
      expect(winners.map(({ fence }) => fence)).toEqual([formatFence(AHEAD + round)]);
      expect(await winners[0]!.release()).toEqual({ ok: true });
    }
    expect(longestMs).toBeLessThan(4_500);
  });

  test("wait for one key with lock(): each gets it, none at the same time", async () => {
    const clients = ["native", "native", "native", "client"].map((transport) =>
      connect({ transport: transport as "native" }),
    );
    const key = newKey();
    let inside = 0;
    let most = 0;
    const runs = clients
      .flatMap((backend) => [backend, backend])
      .map((backend) =>
        lock(
          backend,
          async () => {
            inside += 1;
            most = Math.max(most, inside);
            await sleep(5);
            inside -= 1;
          },
          { key, acquisition: { maxRetries: 200, retryDelayMs: 20, timeoutMs: 20_000 } },
        ),
      );
    await Promise.all(runs);
    expect(most).toBe(1);
  });
});

describe.each(["native", "client"] as const)("%s", (transport) => {
  test("conflicts are repeated inside the operation, and give one fence a lock", async () => {
    const backend = connect({ transport });
    const key = newKey();
    await countFrom(key, AHEAD);
    await emulator.setFaults({ effect: { status: "ABORTED" }, method: "Commit", times: 3 });
    const held = await take(backend, key);
    expect(held.fence).toBe(formatFence(AHEAD + 1));
    await emulator.setFaults({ effect: { status: "ABORTED" }, method: "Commit", times: 2 });
    expect(await held.extend(60_000)).toMatchObject({ ok: true });
    await emulator.setFaults({ effect: { status: "ABORTED" }, method: "Commit", times: 2 });
    expect(await held.release()).toEqual({ ok: true });
  });

  test("conflicts without end are reported when the time is up", async () => {
    const backend = connect({ transport, operationTimeoutMs: 300 });
    const key = newKey();
    await countFrom(key, AHEAD);
    await emulator.setFaults({ effect: { status: "ABORTED" }, method: "Commit" });
    const codes: string[] = [];
    for (let round = 0; round < 5; round += 1) {
      codes.push((await lockError(backend.acquire({ key, ttlMs: 5_000 }))).code);
    }
    expect(codes).toContain("ServiceUnavailable");
    // What becomes of a commit that is under way when the time is up, nobody knows.
    const others = codes.filter((code) => code !== "ServiceUnavailable");
    expect(new Set(["NetworkTimeout", ...others])).toEqual(new Set(["NetworkTimeout"]));
    await emulator.setFaults();
    // Such a commit may still have come through now, and is undone then; its fence is used up.
    await expect.poll(() => stored(key)).toBeUndefined();
    const patient = connect({ transport, operationTimeoutMs: 20_000 });
    expect(Number((await take(patient, key)).fence)).toBeGreaterThan(AHEAD);
  });

  test.each<[string, LockErrorCode]>([
    ["PERMISSION_DENIED", "AuthFailed"],
    ["UNAUTHENTICATED", "AuthFailed"],
    ["RESOURCE_EXHAUSTED", "RateLimited"],
    ["DEADLINE_EXCEEDED", "NetworkTimeout"],
    ["UNAVAILABLE", "ServiceUnavailable"],
    ["INTERNAL", "ServiceUnavailable"],
  ])("%s is %s", async (status, code) => {
    const backend = connect({ transport, operationTimeoutMs: 2_000 });
    const key = newKey();
    await emulator.setFaults({ effect: { status }, method: "Commit" });
    const error = await lockError(backend.acquire({ key, ttlMs: 5_000 }));
    // Google's client repeats some of them by itself, until our time is up.
    expect(transport === "client" ? [code, "NetworkTimeout"] : [code]).toContain(error.code);
    expect(error.message).not.toContain(key);
  });

  test("a reply that does not name its transaction grants nothing", async () => {
    const backend = connect({ transport });
    const [key, held] = [newKey(), await take(backend, newKey())];
    await emulator.resetCalls();
    await emulator.setFaults({ effect: { omit: "transaction" } });
    expect((await lockError(backend.acquire({ key, ttlMs: 5_000 }))).code).toBe("Internal");
    expect((await lockError(held.extend(5_000))).code).toBe("Internal");
    expect(await emulator.calls()).not.toHaveProperty("Commit");
    await emulator.setFaults();
    expect(await stored(key)).toBeUndefined();
    expect(await held.release()).toEqual({ ok: true });
  });

  test("a commit whose reply is lost leaves no lock that nobody owns", async () => {
    const backend = connect({ transport, operationTimeoutMs: 500 });
    const key = newKey();
    await countFrom(key, AHEAD);
    await emulator.setFaults({ effect: { dropReply: "silence" }, method: "Commit" });
    const error = await lockError(backend.acquire({ key, ttlMs: 60_000 }));
    expect(error.code).toBe("NetworkTimeout");
    await emulator.setFaults();
    await until(async () => (await stored(key)) === undefined);
    // Half a second is for the reply that is lost alone.
    expect((await take(connect({ transport }), key)).fence).toBe(formatFence(AHEAD + 2));
  });

  test("a cancelled acquisition ends at once and leaves no lock", async () => {
    const backend = connect({ transport });
    const key = newKey();
    await countFrom(key, AHEAD);
    await emulator.resetCalls();
    await emulator.setFaults({ effect: { latencyMs: 3_000 }, method: "Commit" });
    const controller = new AbortController();
    const acquisition = lockError(
      backend.acquire({ key, ttlMs: 60_000, signal: controller.signal }),
    );
    await until(async () => (await emulator.calls()).Commit === 1);
    const start = performance.now();
    controller.abort();
    expect((await acquisition).code).toBe("Aborted");
    // It does not wait for the commit.
    expect(performance.now() - start).toBeLessThan(2_500);
    await emulator.setFaults();
    // The commit is not known to have failed: what it wrote in the end is taken back.
    await until(async () => (await emulator.calls()).Commit === 2);
    await until(async () => (await stored(key)) === undefined);
    expect((await take(backend, key)).fence).toBe(formatFence(AHEAD + 2));
  });

  test("a lock that others hold is a quick answer, and ends its transaction", async () => {
    const backend = connect({ transport });
    const key = newKey();
    await take(backend, key);
    await emulator.resetCalls();
    expect(await backend.acquire({ key, ttlMs: 1_000 })).toMatchObject({ ok: false });
    await until(async () => (await emulator.calls()).Rollback === 1);
    expect(await emulator.calls()).toEqual({ BatchGetDocuments: 1, Rollback: 1 });
  });
});
