/** Where native connections lead. URLs, options and clients are all converted to this. */

import type {
  PostgresHost,
  PostgresParameter,
  PostgresSettings,
  PostgresTlsSettings,
} from "../native/exports.js";
import { nodeRoots, nodeVerifies } from "../options/node-trust.js";
import { readTls } from "../options/tls.js";
import { copyGiven } from "../options/validation.js";

/** The members of an object of which nothing is known. */
export type Fields = Readonly<Record<string, unknown>>;

export type Target = {
  connection: PostgresSettings;
  /** Gives the password, if that takes a call for each connection. */
  password?: () => unknown;
  /** The client's time limit for a query. */
  operationTimeoutMs?: number;
};

/** The settings for connections equivalent to a client's, or the name of the setting that makes that impossible. */
export type Reading = Target | { obstacle: string };

/** The folder and port of a unix socket, from the path that PostgreSQL gives it. */
export function socketHost(path: string): PostgresHost | undefined {
  const match = /^(\/.*)\/\.s\.PGSQL\.(\d+)$/.exec(path);
  return match === null ? undefined : { host: match[1] as string, port: Number(match[2]) };
}

/** The settings of sessions as a list; `undefined` if one of them is not a simple value. */
export function readParameters(settings: object): PostgresParameter[] | undefined {
  const parameters: PostgresParameter[] = [];
  for (const [name, value] of Object.entries(settings) as [string, unknown][]) {
    if (value === undefined || value === null) continue;
    if (typeof value !== "string" && typeof value !== "number" && typeof value !== "boolean") {
      return undefined;
    }
    parameters.push({ name, value: String(value) });
  }
  return parameters;
}

export type SslReading = { tls: PostgresTlsSettings } | { obstacle: string };

/** Reads options for Node's `tls.connect()`; `true` means its defaults. */
export function readSslObject(ssl: object | true): SslReading {
  // pg makes `key` non-enumerable, so the spread leaves it out.
  const reading = readTls(ssl === true || { ...ssl, key: (ssl as { key?: unknown }).key });
  if ("obstacle" in reading) return { obstacle: reading.obstacle.replace(/^tls/, "ssl") };
  const { rejectUnauthorized, ca, cert, key, servername } = reading.tls;
  const verifies = rejectUnauthorized ?? nodeVerifies();
  const tls: PostgresTlsSettings = { mode: verifies ? "verify-full" : "require" };
  // With a `ca`, the mode "require" would check it.
  if (verifies && ca !== undefined) tls.ca = ca;
  return { tls: copyGiven(tls, { cert, key, servername }, "cert", "key", "servername") };
}

/** Adds the authorities that Node trusts. A URL or a variable may ask for a mode that checks certificates without a `ca`. */
export function withNodeRoots(
  tls: PostgresTlsSettings | undefined,
): PostgresTlsSettings | undefined {
  if (tls?.ca !== undefined || !(tls?.mode ?? "verify").startsWith("verify")) return tls;
  const defaultRoots = nodeRoots();
  return defaultRoots === undefined ? tls : { ...tls, defaultRoots };
}
