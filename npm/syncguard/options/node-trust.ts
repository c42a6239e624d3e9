/** The authorities that Node trusts, for native connections whose settings name none. */

import { readFileSync } from "node:fs";
import type { Roots } from "../native/exports.js";

type Tls = {
  rootCertificates: readonly string[];
  /** From Node 22.15. */
  getCACertificates?: (type: "default") => readonly string[];
};

/** The last list, or the name of the last file, and what was made of it. */
let last: { source: unknown; roots: Roots | undefined } | undefined;

/** The authorities that Node trusts if there is no `ca`; `undefined` means Mozilla's list. */
export function nodeRoots(): Roots | undefined {
  // Loaded only here, because loading it takes milliseconds and nothing else needs it.
  const { getCACertificates, rootCertificates } = require("node:tls") as Tls;
  // Gives the same array until `setDefaultCACertificates` is called.
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

/** Whether Node uses OpenSSL's own files, whose certificates it cannot list: Mozilla's list is used in their place. */
function goesByOpenssl(): boolean {
  const flags = [process.env.NODE_OPTIONS, ...process.execArgv].join(" ");
  const { target_defaults } = process.config as { target_defaults?: { defines?: string[] } };
  // Linux distributions build Node like this.
  const isDefault = target_defaults?.defines?.includes("NODE_OPENSSL_CERT_STORE") === true;
  return flags.includes("--use-openssl-ca") || (isDefault && !flags.includes("--use-bundled-ca"));
}

/** The certificate without line breaks, which may differ. */
function content(pem: string): string {
  return pem.replace(/\s+/g, "");
}

function ofFile(path: string | undefined): Roots | undefined {
  if (!path) return undefined;
  try {
    return { pem: readFileSync(path, "latin1"), withMozilla: true };
  } catch {
    // Node itself has warned about the file and continues without it.
    return undefined;
  }
}

let hasWarned = false;

/** Whether Node verifies certificates if `rejectUnauthorized` is not given. */
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
