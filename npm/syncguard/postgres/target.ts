/** Where native connections go to: what every way to say it ends in. */

import type {
  PostgresHost,
  PostgresParameter,
  PostgresSettings,
  PostgresTlsSettings,
} from "../native/exports.js";
import { nodeRoots, nodeVerifies } from "../options/node-trust.js";
import { readTls } from "../options/tls.js";

export type Target = {
  connection: PostgresSettings;
  /** Asked for at each connection that is opened. */
  password?: () => unknown;
  /** What the client gives a query. */
  operationTimeoutMs?: number;
};

/** Settings for connections that do what a client would, or what stands in the way. */
export type Reading = Target | { obstacle: string };

/** Folder and port of a unix socket, from the name that PostgreSQL gives it. */
export function socketHost(path: string): PostgresHost | undefined {
  const match = /^(\/.*)\/\.s\.PGSQL\.(\d+)$/.exec(path);
  return match === null ? undefined : { host: match[1] as string, port: Number(match[2]) };
}

/** Settings of sessions as lists, `undefined` if one of them is no simple value. */
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

/** Reads an object for Node's `tls.connect()`; `true` stands for its defaults. */
export function readSslObject(ssl: object | true): SslReading {
  // pg hides the key from those who list properties.
  const reading = readTls(ssl === true || { ...ssl, key: (ssl as { key?: unknown }).key });
  if ("obstacle" in reading) return { obstacle: reading.obstacle.replace(/^tls/, "ssl") };
  const { rejectUnauthorized, ca, cert, key, servername } = reading.tls;
  const verifies = rejectUnauthorized ?? nodeVerifies();
  const tls: PostgresTlsSettings = { mode: verifies ? "verify-full" : "require" };
  // With authorities, the mode "require" would check them.
  if (verifies && ca !== undefined) tls.ca = ca;
  if (cert !== undefined) tls.cert = cert;
  if (key !== undefined) tls.key = key;
  if (servername !== undefined) tls.servername = servername;
  return { tls };
}

/** Whom Node trusts, for modes that check certificates against no `ca`; a URL or a variable may say that they do. */
export function withNodeRoots(
  tls: PostgresTlsSettings | undefined,
): PostgresTlsSettings | undefined {
  if (tls?.ca !== undefined || !(tls?.mode ?? "verify").startsWith("verify")) return tls;
  const defaultRoots = nodeRoots();
  if (defaultRoots === undefined) return tls;
  const all = { ...tls };
  all.defaultRoots = defaultRoots;
  return all;
}
