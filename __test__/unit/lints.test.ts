/** That clippy refuses what functions in Rust may not be, by the limits of `clippy.toml` and the lints of `Cargo.toml`. */

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "syncguard-lints-"));
});
afterEach(() => {
  rmSync(folder, { recursive: true });
});

/** What clippy says of a file, by the project's limits. */
function said(code: string): string {
  const file = join(folder, "lib.rs");
  writeFileSync(file, code);
  const lints = [...readFileSync(join(root, "Cargo.toml"), "utf8").matchAll(/^(\w+) = "warn"$/gm)]
    .map(([, lint]) => lint ?? "")
    .filter((lint) => lint.startsWith("too_many"));
  for (const crate of readdirSync(join(root, "crates"))) {
    const top = readFileSync(join(root, "crates", crate, "src/lib.rs"), "utf8");
    expect(top, crate).toContain("#![cfg_attr(not(test), warn(clippy::cognitive_complexity))]");
  }
  const all = [...lints, "cognitive_complexity"].flatMap((lint) => ["-W", `clippy::${lint}`]);
  const args = ["--edition", "2024", "--crate-type", "lib", "--emit", "metadata", file, ...all];
  const ran = spawnSync("clippy-driver", args, {
    cwd: folder,
    env: { ...process.env, CLIPPY_CONF_DIR: root },
    encoding: "utf8",
  });
  expect(ran.error).toBeUndefined();
  return ran.stderr;
}

const lines = (count: number) =>
  `pub fn long() -> u64 {\n    let mut all = 0;\n${"    all += 1;\n".repeat(count - 2)}    all\n}\n`;
const parameters = (count: number) => {
  const names = Array.from({ length: count }, (_, index) => `p${index}`);
  return `pub fn many(${names.map((name) => `${name}: u64`).join(", ")}) -> u64 {\n    ${names.join(" + ")}\n}\n`;
};
const branches = (count: number) =>
  `pub fn knotted(of: u64) -> u64 {\n    let mut all = of;\n${"    if all == 1 {\n        all += 1;\n    }\n".repeat(count)}    all\n}\n`;

test("what keeps to the limits passes", () => {
  const code = lines(60) + parameters(5) + branches(6);
  expect(said(code)).not.toContain("warning");
});

test.each([
  ["too many lines", lines(72), /too many lines \(\d+\/70\)/],
  ["too many parameters", parameters(6), /too many arguments \(6\/5\)/],
  ["too many branches", branches(18), /cognitive complexity of \(\d+\/15\)/],
  [
    "an exception that is not needed any more",
    `#[expect(clippy::too_many_arguments, reason = "a test")]\n${parameters(3)}`,
    /expectation is unfulfilled/,
  ],
])("%s fails", (_, code, words) => {
  expect(said(code)).toMatch(words);
});

test("an exception says why", () => {
  const code = `#[expect(clippy::too_many_arguments, reason = "a test")]\n${parameters(6)}`;
  expect(said(code)).not.toContain("warning");
});
