import { configDefaults, defineConfig } from "vitest/config";
// @ts-expect-error a module of the scripts, in plain JavaScript
import { leftOut } from "./scripts/lib/selection.mjs";

const exclude = (leftOut as () => string[])();

export default defineConfig({
  // Compiles `await using` away: Node 20 does not know it.
  oxc: { target: "es2022" },
  test: {
    include: ["__test__/**/*.test.ts"],
    exclude: [...configDefaults.exclude, ...exclude],
    // Tests load the built package by its own name, in the format that Node picks.
    server: { deps: { external: [/\/dist\//] } },
    // Tests wait for expiries and for servers: more files than cores can run, also beside the tests of Rust (scripts/test.mjs).
    maxWorkers: 4,
    // Nothing takes that long: a test that ends then waits for what never comes, however busy the machine is.
    testTimeout: 90_000,
    // Hooks start servers: a cluster has a minute to form.
    hookTimeout: 90_000,
    unstubEnvs: true,
    restoreMocks: true,
  },
});
