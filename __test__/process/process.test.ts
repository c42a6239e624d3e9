import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { lock } from "syncguard";
import { createSqliteBackend } from "syncguard/sqlite";
import { expectToEnd, run, runtimes, start } from "../support/child";
import { lockError } from "../support/errors";
import { temporaryFolder } from "../support/temp";

let folder: ReturnType<typeof temporaryFolder>;
let file: string;
beforeEach(() => {
  folder = temporaryFolder();
  file = join(folder.path, "locks.db");
});
afterEach(() => {
  folder.remove();
});

describe.each(runtimes)("a process of %s", (runtime) => {
  test.each(["file", ":memory:"])("ends by itself when it is done (%s)", async (where) => {
    await expectToEnd(runtime, "use-and-end.mjs", [where === "file" ? file : where]);
  });

  test("lives until its operations have ended", async () => {
    const { code, stdout, stderr } = await run(runtime, "in-flight.cjs", [file]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout.match(/acquired/g)).toHaveLength(50);
  });

  test("sees no unhandled rejection", async () => {
    const { code, stdout, stderr } = await run(runtime, "rejections.mjs");
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(JSON.parse(stdout)).toEqual({ unhandled: 0 });
  });

  test("shares one LockError and one state between ESM and CommonJS", async () => {
    const { code, stdout, stderr } = await run(runtime, "formats.cjs");
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(JSON.parse(stdout)).toEqual({
      isOneState: true,
      sameError: true,
      recognised: true,
    });
  });

  describe("on the default backend", () => {
    const warnings = async (
      env: Record<string, string>,
      args: string[] = [],
    ): Promise<Record<string, string>[]> => {
      vi.stubEnv("SYNCGUARD_URL", undefined);
      const place = { XDG_STATE_HOME: folder.path, LOCALAPPDATA: folder.path, HOME: folder.path };
      const finished = await run(runtime, "default-backend.mjs", args, { ...place, ...env });
      expect(finished.code).toBe(0);
      return JSON.parse(finished.stdout) as Record<string, string>[];
    };
    const NODE_ENV = "production";

    test.each(["production", "staging", ""])("says once where locks are in %j", async (name) => {
      const seen = await warnings({ NODE_ENV: name });
      expect(seen).toEqual([
        {
          name: "Warning",
          code: "SYNCGUARD_LOCAL_LOCKS",
          text: expect.stringMatching(
            /SYNCGUARD_URL is not set.*locks\.db.*this machine/,
          ) as string,
        },
      ]);
    });

    test("says nothing to those who know", async () => {
      expect(await warnings({ NODE_ENV: "test" })).toEqual([]);
      expect(await warnings({ NODE_ENV: "development" })).toEqual([]);
      expect(await warnings({ NODE_ENV, SYNCGUARD_URL: "local" })).toEqual([]);
      expect(await warnings({ NODE_ENV, SYNCGUARD_URL: `sqlite:${file}` })).toEqual([]);
      expect(await warnings({ NODE_ENV }, ["chosen"])).toEqual([]);
    });
  });

  test("has the basics", async () => {
    const { code, stdout, stderr } = await run(runtime, "basics.mjs", [file]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toBe("basics passed\n");
  });
});

test(
  "many threads load the addon, use it and end, and leave nothing behind",
  { timeout: 600_000 },
  async () => {
    const count = process.env.SYNCGUARD_TESTS === "all" ? "200" : "60";
    const { code, signal, stdout, stderr } = await run("node", "workers.mjs", [file, count]);
    expect({ code, signal, stderr }).toEqual({ code: 0, signal: null, stderr: "" });
    const { grownBytes } = JSON.parse(stdout) as { grownBytes: number };
    expect(grownBytes).toBeLessThan(48 * 1024 * 1024);
  },
);

describe("a database that others keep busy", () => {
  test("holds lock() up no longer than its timeout", async () => {
    const backend = createSqliteBackend(file);
    await backend.isLocked({ key: "some:key" });
    const holder = start("bun", "hold-database.mjs", [file]);
    await holder.printed("busy");
    const started = performance.now();
    const error = await lockError(
      lock(backend, () => 1, { key: "some:key", acquisition: { timeoutMs: 400 } }),
    );
    const tookMs = performance.now() - started;
    expect(["NetworkTimeout", "ServiceUnavailable"]).toContain(error.code);
    expect(tookMs).toBeGreaterThan(300);
    // And not for as long as an operation may take.
    expect(tookMs).toBeLessThan(4_500);

    // Once it is free again, so are locks.
    holder.child.stdin.end();
    await holder.finished;
    expect(await lock(backend, () => "works", { key: "some:key" })).toBe("works");
  });
});
