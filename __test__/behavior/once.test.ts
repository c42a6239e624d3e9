import { expect, test } from "vitest";
import { lockError, rejection } from "../support/errors";
import { newKey, onEveryStore } from "../support/suite";

onEveryStore("what is done once", (connect) => {
  test("is done once for each period, by whoever comes first", async () => {
    const key = newKey();
    const runs: string[] = [];
    for (const due of ["2026-11-24", "2026-11-25", "2026-11-25T06:00Z"]) {
      const results = await Promise.all(
        Array.from({ length: 4 }, async () => {
          const backend = connect();
          const until = Date.now() + 20_000;
          for (;;) {
            const run = await backend.once(key, { due }, ({ fence }) => runs.push(fence));
            if (run.ran || run.reason === "done" || Date.now() > until) return run;
            await new Promise(setImmediate);
          }
        }),
      );
      expect(results.filter(({ ran }) => ran)).toHaveLength(1);
      for (const result of results) if (!result.ran) expect(result.reason).toBe("done");
    }
    expect(runs).toHaveLength(3);
    expect([...runs].sort()).toEqual(runs);
    expect(await connect().isLocked({ key })).toBe(false);
  });

  test("is refused for ever for an earlier period, with the time of the store", async () => {
    const [backend, key] = [connect(), newKey()];
    const before = Date.now();
    await backend.once(key, { due: new Date(before) }, () => undefined);
    for (const due of [before, before - 1, new Date(0)]) {
      const refused = await connect().once(key, { due }, () => undefined);
      const reason = due === before ? "done" : "ahead";
      expect(refused).toMatchObject({ ran: false, reason, lastDue: String(before) });
      const doneAt = (refused as { doneAt: Date }).doneAt.getTime();
      expect(Math.abs(doneAt - before)).toBeLessThan(60_000);
    }
    expect(await backend.once(key, { due: before + 1 }, () => 5)).toEqual({ ran: true, value: 5 });
  });

  test("is refused if it is a date that is far ahead, unless that is allowed", async () => {
    const [backend, key, due] = [connect(), newKey(), "9999-12-31"];
    const error = await lockError(backend.once(key, { due }, () => 1));
    expect(error.code).toBe("InvalidArgument");
    expect(await backend.isLocked({ key })).toBe(false);
    const allowed = await backend.once(key, { due, allowAhead: true }, () => 2);
    expect(allowed).toEqual({ ran: true, value: 2 });
    const late = await backend.once(key, { due: "2026-11-24" }, () => 3);
    expect(late).toMatchObject({ ran: false, reason: "ahead", lastDue: due });
  });

  test("stays open if it fails, and is told to be running meanwhile", async () => {
    const [backend, key] = [connect(), newKey()];
    const failure = new Error("no paper");
    const failed = backend.once(key, { due: 1, autoExtend: true }, async () => {
      const other = await connect().once(key, { due: 1 }, () => undefined);
      expect(other).toEqual({ ran: false, reason: "running" });
      throw failure;
    });
    expect(await rejection(failed)).toBe(failure);
    expect(await connect().once(key, { due: 1 }, () => 2)).toEqual({ ran: true, value: 2 });
  });

  test("is not stored if the lock was lost", async () => {
    const [backend, key] = [connect(), newKey()];
    const lost = backend.once(key, { due: 1, onLost: () => undefined }, async () => {
      await connect().forceRelease(key);
    });
    expect(await lockError(lost)).toMatchObject({ code: "LockLost" });
    expect(await connect().once(key, { due: 1 }, () => 2)).toEqual({ ran: true, value: 2 });
  });

  test("has numbers or texts as its periods", async () => {
    const [backend, key] = [connect(), newKey()];
    await backend.once(key, { due: 9 }, () => undefined);
    expect(await backend.once(key, { due: 10 }, () => 1)).toMatchObject({ ran: true });
    const error = await lockError(backend.once(key, { due: "v11" }, () => 1));
    expect(error.code).toBe("InvalidArgument");
    expect(error.message).toContain("due is a number where a text is stored");
    expect(await backend.isLocked({ key })).toBe(false);
  });
});
