// Which tests `npm test` runs, and which only `npm run test:all` does: what asks the same on another version, runtime, bundler or
// client, and what plays for long. vitest.config.mts and the suites themselves read the same variable, SYNCGUARD_TESTS.

/** "all" or "each". */
export function selection(env = process.env) {
  return env.SYNCGUARD_TESTS === "all" ? "all" : "each";
}

/** Programs of Rust's tests, as rust-tests.mjs names them. */
export const LONG_PROGRAMS = ["torture/matrix"];

/** Tests in TypeScript: files, and whole folders. */
const LONG_FILES = [
  "__test__/bench/busy.test.ts",
  "__test__/bench/contenders.test.ts",
  "__test__/bench/pairs.test.ts",
  // In a browser.
  "__test__/dashboard/page.test.ts",
  "__test__/matrix/**",
  "__test__/package/bundle.test.ts",
  "__test__/package/managers.test.ts",
  "__test__/package/ship.test.ts",
  // Of a release, on every platform.
  "__test__/package/platforms.test.ts",
  "__test__/runtimes/**",
  "__test__/site/**",
];

/** Whether a program of Rust's tests is run. */
export function isSelected(program) {
  return selection() === "all" || !LONG_PROGRAMS.includes(program);
}

/** The files that vitest leaves out. */
export function leftOut() {
  return selection() === "all" ? [] : LONG_FILES;
}
