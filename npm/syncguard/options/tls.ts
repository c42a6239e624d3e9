/** Converts Node's TLS settings to those of the addon. */

import { types } from "node:util";
import type { TlsSettings } from "../native/exports.js";
import { nodeRoots, nodeVerifies } from "./node-trust.js";

/** The addon's settings, or the name of the first setting that it does not support. */
export type TlsReading = { tls: TlsSettings } | { obstacle: string };

/** Settings that do not affect who is trusted. */
const HARMLESS: ReadonlySet<string> = new Set([
  "host",
  "port",
  "family",
  "tls",
  "timeout",
  "connectTimeout",
  "socketTimeout",
  "reconnectStrategy",
  "pingInterval",
  "noDelay",
  "keepAlive",
  "keepAliveInitialDelay",
  "autoSelectFamily",
  "autoSelectFamilyAttemptTimeout",
]);

/**
 * Reads options of Node's `tls.connect()`.
 *
 * @param options - `true` means the defaults
 * @param isSocket - whether fields that name the other end are read elsewhere
 */
export function readTls(options: unknown, isSocket = false): TlsReading {
  if (options === true) return { tls: {} };
  if (typeof options !== "object" || options === null) return { obstacle: "tls" };
  const tls: TlsSettings = {};
  for (const [name, value] of Object.entries(options) as [string, unknown][]) {
    if (value === undefined || value === null) continue;
    if (name === "ca" || name === "cert" || name === "key") {
      const pem = readPem(value);
      if (pem === undefined) return { obstacle: `tls.${name}` };
      tls[name] = pem;
    } else if (name === "servername" && typeof value === "string" && value !== "") {
      tls.servername = value;
    } else if (name === "rejectUnauthorized" && typeof value === "boolean") {
      tls.rejectUnauthorized = value;
    } else if (name === "minVersion" && value !== "TLSv1.3") {
      // The core supports nothing older than TLS 1.2.
    } else if (!(HARMLESS.has(name) && (isSocket || !ADDRESS.has(name)))) {
      return { obstacle: `tls.${name}` };
    }
  }
  return { tls };
}

/** Fills in what Node would do where the settings say nothing. */
export function withNodeDefaults(tls: TlsSettings): TlsSettings {
  const all = { ...tls };
  if (!(tls.rejectUnauthorized ?? nodeVerifies())) {
    all.rejectUnauthorized = false;
  } else if (tls.ca === undefined) {
    const defaultRoots = nodeRoots();
    if (defaultRoots !== undefined) all.defaultRoots = defaultRoots;
  }
  return all;
}

const ADDRESS: ReadonlySet<string> = new Set(["host", "port", "family"]);

/** One PEM text from a value that Node accepts: a text, bytes, or a list of them. */
function readPem(value: unknown): string | undefined {
  if (typeof value === "string") return value;
  // Also one of another realm.
  if (types.isUint8Array(value)) return Buffer.from(value).toString();
  if (!Array.isArray(value)) return undefined;
  const parts = value.map(readPem);
  return parts.every((part) => part !== undefined) ? parts.join("\n") : undefined;
}
