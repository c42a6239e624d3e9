import js from "@eslint/js";
import { defineConfig, globalIgnores } from "eslint/config";
import tseslint from "typescript-eslint";
import { doors, limits } from "./scripts/lib/rooms.mjs";

export default defineConfig(
  globalIgnores([
    ...["**/dist", "target", "node_modules", "index.d.ts"],
    ...["docs/.vitepress/cache", "examples/*/.next", "examples/*/next-env.d.ts"],
    // In the words of napi.
    "npm/syncguard/native/exports.ts",
    // There for the compiler alone.
    "__test__/types/*.{mts,cts}",
  ]),
  {
    files: ["**/*.ts", "**/*.mts", "**/*.cts"],
    extends: [tseslint.configs.strictTypeChecked],
    languageOptions: {
      parserOptions: { projectService: { allowDefaultProject: ["vitest.config.mts"] } },
    },
    rules: {
      "@typescript-eslint/consistent-type-imports": ["error", { fixStyle: "inline-type-imports" }],
      // Callers in plain JavaScript pass anything: checks that types call unnecessary are needed.
      "@typescript-eslint/no-unnecessary-condition": "off",
      // `async` turns synchronous throws into rejections.
      "@typescript-eslint/require-await": "off",
      "@typescript-eslint/return-await": ["error", "error-handling-correctness-only"],
      "@typescript-eslint/no-confusing-void-expression": ["error", { ignoreArrowShorthand: true }],
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      "@typescript-eslint/unified-signatures": "off",
      "@typescript-eslint/no-unused-vars": ["error", { argsIgnorePattern: "^_" }],
    },
  },
  ...doors,
  ...limits,
  {
    // What is plain JavaScript: scripts, the demo, the benchmarks, examples and fixtures.
    files: ["**/*.mjs", "**/*.js", "**/*.cjs"],
    extends: [js.configs.recommended, tseslint.configs.strict],
    languageOptions: {
      // Those of the Node.js that runs ESLint.
      globals: Object.fromEntries(
        Object.getOwnPropertyNames(globalThis).map((name) => [name, false]),
      ),
    },
    rules: {
      eqeqeq: "error",
      "no-var": "error",
      "prefer-const": "error",
      "object-shorthand": "error",
      // The rule of typescript-eslint stands in its place.
      "no-unused-vars": "off",
      "@typescript-eslint/no-unused-vars": [
        "error",
        { argsIgnorePattern: "^_", varsIgnorePattern: "^_$" },
      ],
      // Listeners and timers that keep something alive often have nothing to do.
      "@typescript-eslint/no-empty-function": "off",
    },
  },
  {
    files: ["**/*.cjs"],
    languageOptions: {
      globals: {
        require: false,
        module: false,
        exports: false,
        __dirname: false,
        __filename: false,
      },
    },
    rules: { "@typescript-eslint/no-require-imports": "off" },
  },
  {
    // Reads what the addon wrote, which has no types that TypeScript could check.
    files: ["npm/syncguard/native/operations.ts"],
    rules: { "@typescript-eslint/no-unsafe-enum-assignment": "off" },
  },
  {
    // Load what is not needed, or not there, everywhere.
    files: [
      "npm/syncguard/native/loader.ts",
      "npm/syncguard/options/node-trust.ts",
      "npm/syncguard/redis/cluster.ts",
    ],
    rules: { "@typescript-eslint/no-require-imports": "off" },
  },
  {
    // A module of NestJS is a class, with or without members.
    files: ["examples/nestjs/**"],
    rules: { "@typescript-eslint/no-extraneous-class": "off" },
  },
  {
    // Tests throw and reject whatever users might.
    files: ["__test__/**"],
    rules: {
      "@typescript-eslint/no-non-null-assertion": "off",
      "@typescript-eslint/unbound-method": "off",
      "@typescript-eslint/only-throw-error": "off",
      "@typescript-eslint/prefer-promise-reject-errors": "off",
    },
  },
);
