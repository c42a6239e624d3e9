import { readFileSync } from "node:fs";
import tls from "node:tls";
import { afterEach, expect, test, vi } from "vitest";
import { nodeRoots } from "../../npm/syncguard/options/node-trust";

const node = tls as unknown as { getCACertificates?: () => readonly string[] };
const original = node.getCACertificates;
afterEach(() => {
  if (original === undefined) delete node.getCACertificates;
  else node.getCACertificates = original;
});

/** What is made of the list of a Node that tells it. */
function rootsOf(list: readonly string[]): ReturnType<typeof nodeRoots> {
  node.getCACertificates = () => list;
  return nodeRoots();
}

const mozilla = tls.rootCertificates;
const MORE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

test("Mozilla's list needs no words", () => {
  expect(rootsOf(mozilla)).toBeUndefined();
  // As Node writes a list that was set.
  const rewritten = mozilla.map((pem) => `${pem.replaceAll("\n", "\r\n")}\n`).reverse();
  expect(rootsOf(rewritten)).toBeUndefined();
});

test("what Node trusts beside it is added", () => {
  const roots = rootsOf([...mozilla, MORE, mozilla[3] as string]);
  expect(roots).toEqual({ pem: MORE, withMozilla: true });
});

test("a list that was set instead of it replaces it", () => {
  expect(rootsOf([MORE])).toEqual({ pem: MORE, withMozilla: false });
  const most = mozilla.slice(1);
  expect(rootsOf(most)).toEqual({
    pem: most.join("\n"),
    withMozilla: false,
  });
});

test("a Node that goes by OpenSSL's own files does not tell them: Mozilla's list stands for those", () => {
  vi.stubEnv("NODE_OPTIONS", "--use-openssl-ca");
  expect(rootsOf([])).toBeUndefined();
  expect(rootsOf([MORE])).toEqual({ pem: MORE, withMozilla: true });
});

test("an older Node has nothing but the file", () => {
  delete node.getCACertificates;
  vi.stubEnv("NODE_EXTRA_CA_CERTS", undefined);
  expect(nodeRoots()).toBeUndefined();
  vi.stubEnv("NODE_EXTRA_CA_CERTS", "/nonexistent/ca.pem");
  expect(nodeRoots()).toBeUndefined();
  vi.stubEnv("NODE_EXTRA_CA_CERTS", import.meta.filename);
  const pem = readFileSync(import.meta.filename, "utf8");
  expect(nodeRoots()).toEqual({ pem, withMozilla: true });
});
