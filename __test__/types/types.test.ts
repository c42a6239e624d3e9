import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import current from "typescript";
import least from "typescript-5.2";
import { expect, test } from "vitest";

type CompilerOptions = current.CompilerOptions;

const path = (name: string): string => fileURLToPath(new URL(name, import.meta.url));

/** What the compiler has to say about a file under `options` on top of the project's own. */
function diagnose(file: string, options: CompilerOptions = {}, ts = current): string[] {
  const config = ts.getParsedCommandLineOfConfigFile(path("./tsconfig.json"), options, {
    ...ts.sys,
    onUnRecoverableConfigFileDiagnostic: (diagnostic) => {
      throw new Error(ts.flattenDiagnosticMessageText(diagnostic.messageText, "\n"));
    },
  });
  const program = ts.createProgram([path(file)], config?.options ?? {});
  return ts.getPreEmitDiagnostics(program).map(({ file: source, start, messageText }) => {
    const line = source?.getLineAndCharacterOfPosition(start ?? 0).line ?? 0;
    return `${source?.fileName}:${line + 1} ${ts.flattenDiagnosticMessageText(messageText, "\n")}`;
  });
}

test.each(["./api.mts", "./stores.mts", "./adapters.mts", "./commonjs.cts", "./upgrade.mts"])(
  "the types are as %s expects",
  (file) => {
    expect(diagnose(file)).toEqual([]);
  },
);

test("the types do without exactOptionalPropertyTypes, and check their own declarations", () => {
  const options = { exactOptionalPropertyTypes: false, skipLibCheck: false };
  expect(diagnose("./commonjs.cts", options)).toEqual([]);
});

const versions: [string, typeof current][] = [["the current version", current]];
// `npm run test:all` asks other versions.
if (process.env.SYNCGUARD_TESTS === "all")
  versions.push(["the oldest version that the page names", least as unknown as typeof current]);

test.each(versions)("the types do with the library of ES2020, by %s", (_, ts) => {
  const options = { target: current.ScriptTarget.ES2020, lib: ["lib.es2020.d.ts"] };
  expect(diagnose("./least.mts", { ...options, skipLibCheck: false }, ts)).toEqual([]);
});

test("README.md names the oldest version of TypeScript, for the repository and for the package", () => {
  const readme = readFileSync(path("../../README.md"), "utf8");
  const named = [...readme.matchAll(/TypeScript\s+(\d+\.\d+) or later/g)].map(([, name]) => name);
  expect(named).toEqual([least.versionMajorMinor, least.versionMajorMinor]);
});

test("index.d.ts compiles", () => {
  expect(diagnose("../../index.d.ts")).toEqual([]);
});

test("a mistake would be seen, and what it is", () => {
  const [ttl, lock, claim, tryLock, ...more] = diagnose("./mistake.mts");
  expect(ttl).toMatch(/mistake\.mts:.*ttlMs/s);
  expect(lock).toMatch(/'wait' does not exist in type 'BackendLockOptions'/);
  expect(claim).toMatch(/'mod' does not exist in type .* Did you mean to write 'mode'\?/);
  expect(tryLock).toMatch(/'wait' does not exist in type 'TryLockOptions'/);
  expect(more).toEqual([]);
});
