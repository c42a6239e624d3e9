import { copyFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { inspect } from "node:util";
import { describe, expect, onTestFinished, test } from "vitest";
import { LockError } from "syncguard";
import { LockError as FromCommon } from "syncguard/common";
import { temporaryFolder } from "../support/temp";

const require = createRequire(import.meta.url);

/** The class of a second installed copy. */
function secondCopy(): typeof LockError {
  const folder = temporaryFolder();
  onTestFinished(folder.remove);
  const copy = join(folder.path, "errors.js");
  copyFileSync(join(require.resolve("syncguard"), "..", "native", "errors.js"), copy);
  return (require(copy) as { LockError: typeof LockError }).LockError;
}

describe("LockError", () => {
  test("has name, code, message and context", () => {
    const cause = new Error("below");
    const error = new LockError("Internal", "it broke", { key: "k", lockId: "l", cause });
    expect(error).toBeInstanceOf(Error);
    expect(error.name).toBe("LockError");
    expect(error.code).toBe("Internal");
    expect(error.message).toBe("it broke");
    expect(error.context).toEqual({ key: "k", lockId: "l", cause });
    expect(error.cause).toBe(cause);
    expect(error.stack).toMatch(/^LockError: it broke\n/);
    expect(String(error)).toBe("LockError: it broke");
  });

  test("has its code for a message if there is none", () => {
    const error = new LockError("RateLimited");
    expect(error.message).toBe("RateLimited");
    expect(error.context).toBeUndefined();
    expect(error).not.toHaveProperty("cause");
  });

  test("prints neither key nor lock id", () => {
    const error = new LockError("Aborted", "stopped", { key: "secret-key", lockId: "secret-id" });
    for (const text of [inspect(error), inspect(error, { depth: 9 }), JSON.stringify(error)]) {
      expect(text).not.toContain("secret");
    }
    expect(inspect(error)).toContain("Aborted");
    expect(Object.keys(error)).toEqual(["code"]);
    expect(Object.hasOwn(error, "context")).toBe(true);
  });

  test("is one class on all entry points and in both formats", () => {
    const { LockError: fromRequire } = require("syncguard") as { LockError: typeof LockError };
    expect(FromCommon).toBe(LockError);
    expect(fromRequire).toBe(LockError);
  });

  test("recognises the errors of a second copy, both ways", () => {
    const Other = secondCopy();
    expect(Other).not.toBe(LockError);
    expect(new Other("Internal") instanceof LockError).toBe(true);
    expect(new LockError("Internal") instanceof Other).toBe(true);
  });

  test("recognises nothing else", () => {
    const lookalike = Object.assign(new Error("x"), { name: "LockError", code: "Internal" });
    for (const value of [lookalike, {}, null, undefined, "LockError", () => 1]) {
      expect(value instanceof LockError).toBe(false);
    }
  });

  test("can be extended", () => {
    class Special extends LockError {}
    const special = new Special("Internal");
    expect(special instanceof Special).toBe(true);
    expect(special instanceof LockError).toBe(true);
    expect(new LockError("Internal") instanceof Special).toBe(false);
  });
});
