import { expect, test } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import { npmLicences } from "../../scripts/lib/licences.mjs";

const check = npmLicences as (text: string) => string;
const lock = (packages: object): string => JSON.stringify({ packages: { "": {}, ...packages } });

test("packages with a licence that is allowed pass, and so do the tools that are excepted", () => {
  const packages = {
    "node_modules/a": { license: "MIT" },
    "node_modules/a/node_modules/@b/c": { license: "BSD-3-Clause" },
    "node_modules/lightningcss-linux-x64-gnu": { license: "MPL-2.0" },
  };
  expect(check(lock(packages))).toBe("3 packages");
});

test.each([
  ["node_modules/a", { license: "GPL-3.0-only" }, "a: GPL-3.0-only"],
  ["node_modules/a/node_modules/@b/c", {}, "@b/c: no licence"],
  ["node_modules/a", { license: "MPL-2.0" }, "a: MPL-2.0"],
  ["node_modules/lightningcss", { license: "LGPL-3.0-only" }, "lightningcss: LGPL-3.0-only"],
])("%s with %o does not", (path, entry, fault) => {
  expect(() => check(lock({ [path]: entry }))).toThrow(fault);
});
