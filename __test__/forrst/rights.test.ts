import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { withTelemetry } from "syncguard";
import { createAtomicLock } from "syncguard/forrst";
import { type Backend, newKey, onEveryStore } from "../support/suite";
import { until } from "../support/until";
import {
  charge,
  codes,
  dataOf,
  FORCE_RELEASE,
  ownerOf,
  RELEASE,
  STATUS,
  succeed,
  system,
  ttl,
  unreachable,
  fullKey,
} from "./requests";

/** The whole of a release in one call of the addon; or step by step, as the telemetry sees it. */
const ways: [string, (backend: Backend) => Backend][] = [
  ["alone", (backend) => backend],
  ["under telemetry", (backend) => withTelemetry(backend, { onEvent: () => undefined })],
];

onEveryStore("who may release", (connect) => {
  describe.each(ways)("%s", (_, through) => {
    const open = () => through(connect());

    test("another server with the key and the owner may", async () => {
      const [first, second] = [createAtomicLock(open()), createAtomicLock(open())];
      const key = newKey();
      const full = fullKey(key);
      const kept = await first.handle(charge({ key, ttl, auto_release: false }), succeed);
      const status = await second.handle(system(STATUS, { key: full }), unreachable);
      expect(status.result).toMatchObject({ locked: true, owner: ownerOf(kept) });

      const release = system(RELEASE, { key: full, owner: ownerOf(kept) });
      const released = await second.functions[RELEASE](release);
      expect(released.result).toEqual({ released: true, key: full });
      expect(codes(await first.handle(release, unreachable))).toEqual(["LOCK_NOT_FOUND"]);
    });

    test("the owner of another lock may not", async () => {
      const { handle } = createAtomicLock(open());
      const [key, other] = [newKey(), newKey()];
      const kept = charge({ key, ttl, owner: "worker-1", auto_release: false });
      await handle(kept, succeed);
      await handle(charge({ key: other, ttl, owner: "worker-2", auto_release: false }), succeed);
      const full = fullKey(other);
      for (const owner of ["worker-1", "worker-", "worker-22", "WORKER-2", "worker-2 "]) {
        const refused = await handle(system(RELEASE, { key: full, owner }), unreachable);
        expect(codes(refused)).toEqual(["LOCK_OWNERSHIP_MISMATCH"]);
      }
      // The same owner cannot take the lock twice either.
      expect(codes(await handle(kept, unreachable))).toEqual(["LOCK_ACQUISITION_FAILED"]);
      const released = await handle(system(RELEASE, { key: full, owner: "worker-2" }), unreachable);
      expect(released.result).toEqual({ released: true, key: full });
    });

    test("an owner whose lock has expired may not, whoever holds it now", async () => {
      const { handle } = createAtomicLock(open());
      const key = newKey();
      const full = fullKey(key);
      const short = { value: 20, unit: "millisecond" };
      await handle(charge({ key, ttl: short, owner: "worker-1", auto_release: false }), succeed);
      const release = system(RELEASE, { key: full, owner: "worker-1" });
      await until(async () => {
        const { result } = await handle(system(STATUS, { key: full }), unreachable);
        return !(result as { locked: boolean }).locked;
      });
      expect(codes(await handle(release, unreachable))).toEqual(["LOCK_NOT_FOUND"]);

      await handle(charge({ key, ttl, owner: "worker-2", auto_release: false }), succeed);
      expect(codes(await handle(release, unreachable))).toEqual(["LOCK_OWNERSHIP_MISMATCH"]);
      const status = await handle(system(STATUS, { key: full }), unreachable);
      expect(status.result).toMatchObject({ locked: true, owner: "worker-2" });
    });

    test("the host and the process of a lock without an owner are no proof", async () => {
      const backend = open();
      const { handle } = createAtomicLock(backend);
      const [key, owner] = [fullKey(newKey()), "web-3:4711"];
      const held = await backend.lock(key, { owner });
      const refused = await handle(system(RELEASE, { key, owner }), unreachable);
      expect(codes(refused)).toEqual(["LOCK_OWNERSHIP_MISMATCH"]);
      const { result } = await handle(system(STATUS, { key }), unreachable);
      expect(result).toMatchObject({ locked: true });
      expect(result).not.toHaveProperty("owner");
      expect(await held.release()).toEqual({ ok: true });
    });

    test("owners can be any text of 255 bytes", async () => {
      const { handle } = createAtomicLock(open());
      const texts = ['"; DROP TABLE locks; --', "a\nb\t:{}", "a\0b", "worker:5", "worker:5:"];
      for (const owner of ["é".repeat(127) + "x", ...texts]) {
        const key = newKey();
        const kept = await handle(charge({ key, ttl, owner, auto_release: false }), succeed);
        expect(dataOf(kept)).toMatchObject({ acquired: true, owner });
        const full = fullKey(key);
        const released = await handle(system(RELEASE, { key: full, owner }), unreachable);
        expect(released.result).toEqual({ released: true, key: full });
      }
    });
  });

  test("a waiting request gets a lock that is freed, promptly", async () => {
    const backend = connect();
    const { handle } = createAtomicLock(backend);
    const key = newKey();
    const kept = await handle(charge({ key, ttl, auto_release: false }), succeed);
    const block = { value: 20, unit: "second" };
    const waiting = handle(charge({ key, ttl, block }), succeed);
    // Long enough that waits which double each time would have become long.
    await sleep(700);
    await handle(system(RELEASE, { key: fullKey(key), owner: ownerOf(kept) }), unreachable);
    const freed = performance.now();
    expect(dataOf(await waiting)).toMatchObject({ acquired: true });
    expect(performance.now() - freed).toBeLessThan(10_000);
    expect(await backend.isLocked({ key: fullKey(key) })).toBe(false);
  });

  test("a forced release asks the server first", async () => {
    const asked: unknown[] = [];
    const backend = connect();
    const plain = createAtomicLock(backend);
    const guarded = createAtomicLock(backend, {
      authorize: async (request) => {
        asked.push(request);
        return request.id === "admin";
      },
    });
    const key = newKey();
    const full = fullKey(key);
    await plain.handle(charge({ key, ttl, auto_release: false }), succeed);
    const force = system(FORCE_RELEASE, { key: full });
    for (const { handle } of [plain, guarded]) {
      const refused = await handle(force, unreachable);
      expect(refused).toMatchObject({ result: null, errors: [{ code: "FORBIDDEN" }] });
    }
    expect(asked).toEqual([force]);
    expect(await backend.isLocked({ key: full })).toBe(true);
    const forced = await guarded.handle({ ...force, id: "admin" }, unreachable);
    expect(forced.result).toEqual({ released: true, key: full, forced: true });
    expect(await backend.isLocked({ key: full })).toBe(false);
  });
});
