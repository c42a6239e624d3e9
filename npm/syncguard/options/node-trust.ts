/** Whom Node trusts, for native connections whose settings do not say. */

import { readFileSync } from "node:fs";
import type { Roots } from "../native/exports.js";

type Tls = {
  rootCertificates: readonly string[];
  /** From Node 22.15. */
  getCACertificates?: (type: "default") => readonly string[];
};

/** What was made of a list, or of the file of that name. */
let last: { source: unknown; roots: Roots | undefined } | undefined;

/** Whom Node trusts where there is no `ca`; `undefined` stands for Mozilla's list. */
export function nodeRoots(): Roots | undefined {
  // Nothing else needs this module, which takes milliseconds to load.
  const { getCACertificates, rootCertificates } = require("node:tls") as Tls;
  // The same list until `setDefaultCACertificates` has been called.
  const source = getCACertificates?.("default") ?? process.env.NODE_EXTRA_CA_CERTS;
  if (last === undefined || last.source !== source) {
    const roots =
      typeof source === "object" ? beyondMozilla(source, rootCertificates) : ofFile(source);
    last = { source, roots };
  }
  return last.roots;
}

function beyondMozilla(list: readonly string[], mozilla: readonly string[]): Roots | undefined {
  const mozillas = new Set(mozilla.map(content));
  const more = new Map(list.map((pem) => [content(pem), pem]));
  const found = [...mozillas].filter((pem) => more.delete(pem)).length;
  if (found < mozillas.size && !goesByOpenssl()) {
    return { pem: list.join("\n"), withMozilla: false };
  }
  return more.size === 0 ? undefined : { pem: [...more.values()].join("\n"), withMozilla: true };
}

/** Whether Node trusts what OpenSSL's own files hold, which it does not list: Mozilla's list stands for those. */
function goesByOpenssl(): boolean {
  const flags = [process.env.NODE_OPTIONS, ...process.execArgv].join(" ");
  const { target_defaults } = process.config as { target_defaults?: { defines?: string[] } };
  // Distributions build it so.
  const isDefault = target_defaults?.defines?.includes("NODE_OPENSSL_CERT_STORE") === true;
  return flags.includes("--use-openssl-ca") || (isDefault && !flags.includes("--use-bundled-ca"));
}

/** Lines are broken in one way or another. */
function content(pem: string): string {
  return pem.replace(/\s+/g, "");
}

function ofFile(path: string | undefined): Roots | undefined {
  if (!path) return undefined;
  try {
    return { pem: readFileSync(path, "latin1"), withMozilla: true };
  } catch {
    // Node has warned of it and goes on.
    return undefined;
  }
}

let hasWarned = false;

/** Whether Node verifies certificates where there is no `rejectUnauthorized`. */
export function nodeVerifies(): boolean {
  if (process.env.NODE_TLS_REJECT_UNAUTHORIZED !== "0") return true;
  if (!hasWarned) {
    hasWarned = true;
    process.emitWarning(
      "NODE_TLS_REJECT_UNAUTHORIZED is 0: syncguard does not verify certificates of servers",
    );
  }
  return false;
}
