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

/** Carries a value over to the addon's settings; `false` if the addon does not support it. */
type CarryOver = (tls: TlsSettings, value: unknown) => boolean;

function pem(name: "ca" | "cert" | "key"): CarryOver {
  return (tls, value) => {
    const text = readPem(value);
    if (text !== undefined) tls[name] = text;
    return text !== undefined;
  };
}

/** Settings that the addon has, too. */
const SUPPORTED: ReadonlyMap<string, CarryOver> = new Map<string, CarryOver>([
  ["ca", pem("ca")],
  ["cert", pem("cert")],
  ["key", pem("key")],
  [
    "servername",
    (tls, value) => {
      if (typeof value !== "string" || value === "") return false;
      tls.servername = value;
      return true;
    },
  ],
  [
    "rejectUnauthorized",
    (tls, value) => {
      if (typeof value !== "boolean") return false;
      tls.rejectUnauthorized = value;
      return true;
    },
  ],
  // The core supports nothing older than TLS 1.2.
  ["minVersion", (_, value) => value !== "TLSv1.3"],
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
    const carryOver = SUPPORTED.get(name);
    const isSupported =
      carryOver === undefined
        ? HARMLESS.has(name) && (isSocket || !ADDRESS.has(name))
        : carryOver(tls, value);
    if (!isSupported) return { obstacle: `tls.${name}` };
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
