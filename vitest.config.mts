import { defineConfig } from "vitest/config";

export default defineConfig({
  // Compiles `await using` away: Node 20 does not know it.
  oxc: { target: "es2022" },
  test: {
    include: ["__test__/**/*.test.ts"],
    // Tests load the built package by its own name, in the format that Node picks.
    server: { deps: { external: [/\/dist\//] } },
    // Most of the time goes into waiting, for expiries and for servers: more files than cores can run, also beside the
    // tests of Rust (scripts/test.mjs).
    maxWorkers: 3,
    testTimeout: 30_000,
    // Hooks start servers: a cluster has a minute to form.
    hookTimeout: 90_000,
    unstubEnvs: true,
    restoreMocks: true,
  },
});
