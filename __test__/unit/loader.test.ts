import { expect, test, vi } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import { addon } from "../../scripts/lib/paths.mjs";
import { loadAddon, notLoaded, platformNames } from "../../npm/syncguard/native/loader";

test.each([
  ["darwin", "arm64", "", ["darwin-arm64"]],
  ["win32", "x64", "", ["win32-x64-msvc"]],
  ["freebsd", "x64", "", ["freebsd-x64"]],
  ["linux", "x64", "\x7fELF…/lib64/ld-linux-x86-64.so.2\0", ["linux-x64-gnu"]],
  ["linux", "arm64", "\x7fELF…/lib/ld-linux-aarch64.so.1\0", ["linux-arm64-gnu"]],
  ["linux", "x64", "\x7fELF…/lib/ld-musl-x86_64.so.1\0", ["linux-x64-musl"]],
  // A program without a dynamic loader, or one that cannot be read.
  ["linux", "arm64", "\x7fELF…", ["linux-arm64-gnu", "linux-arm64-musl"]],
])("%s on %s goes by its packages", (platform, arch, start, names) => {
  expect(platformNames(platform, arch, start)).toEqual(names);
});

test("asks for no report, which looks up the names of all peers", () => {
  const getReport = vi.spyOn(process.report, "getReport");
  vi.stubEnv("SYNCGUARD_NATIVE_PATH", addon as string);
  expect(loadAddon()).toHaveProperty("NativeBackend");
  expect(getReport).not.toHaveBeenCalled();
});

function missing(name: string): { where: string; error: Error } {
  const error = new Error(`Cannot find module '${name}'\nRequire stack:\n- /app.js`);
  return { where: name, error: Object.assign(error, { code: "MODULE_NOT_FOUND" }) };
}

test("on a platform without a binary, the error says which have one and how to build it", () => {
  const { code, message } = notLoaded("freebsd-x64", [missing("syncguard-freebsd-x64")], ["linux-x64-gnu"]); // prettier-ignore
  expect(code).toBe("Internal");
  expect(message).toContain("for freebsd-x64 could not be loaded");
  expect(message).toContain("There are binaries for linux-x64-gnu only.");
  expect(message).toContain("npm run pack");
  expect(message).toContain("Cannot find module 'syncguard-freebsd-x64'");
  expect(message).not.toMatch(/optional|Require stack/);
});

test("where its package exists, the error says that it is not installed", () => {
  const { message } = notLoaded("linux-x64-gnu", [missing("syncguard-linux-x64-gnu")], ["linux-x64-gnu"]); // prettier-ignore
  expect(message).toContain("syncguard-linux-x64-gnu, is an optional dependency");
  expect(message).not.toContain("npm run pack");
});

test("what is there and cannot be loaded is explained by the loader alone", () => {
  const words = "/lib/libc.so.6: version `GLIBC_2.34' not found";
  const error = Object.assign(new Error(words), { code: "ERR_DLOPEN_FAILED" });
  const thrown = notLoaded("linux-x64-gnu", [{ where: "syncguard-linux-x64-gnu", error }], []);
  expect(thrown.message).toBe(
    "The native part of syncguard for linux-x64-gnu could not be loaded." +
      `\n  syncguard-linux-x64-gnu: ${words}`,
  );
  expect(thrown.cause).toBe(error);
});

test("a file that SYNCGUARD_NATIVE_PATH names is the only one that counts", () => {
  vi.stubEnv("SYNCGUARD_NATIVE_PATH", "/nonexistent/addon.node");
  expect(loadAddon).toThrow(
    /could not be loaded\.\n {2}\/nonexistent\/addon\.node: Cannot find module[^\n]*$/,
  );
});
