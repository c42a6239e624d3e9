/** `ssl` as postgres.js and pg take it, in the addon's words. */

import { nodeRoots, nodeVerifies } from "../options/node-trust.js";
import type { PostgresTls } from "./target.js";
import { readTls } from "../options/tls.js";

export type SslReading = { tls: PostgresTls } | { obstacle: string };

/** Reads an object for Node's `tls.connect()`; `true` stands for its defaults. */
export function readSslObject(ssl: object | true): SslReading {
  // pg hides the key from those who list properties.
  const reading = readTls(ssl === true || { ...ssl, key: (ssl as { key?: unknown }).key });
  if ("obstacle" in reading) return { obstacle: reading.obstacle.replace(/^tls/, "ssl") };
  const { rejectUnauthorized, ca, ...tls } = reading.tls;
  // With authorities, the mode "require" would check them.
  if (!(rejectUnauthorized ?? nodeVerifies())) return { tls: { ...tls, mode: "require" } };
  return { tls: { ...tls, mode: "verify-full", ...(ca === undefined ? {} : { ca }) } };
}

/** Whom Node trusts, for modes that check certificates against no `ca`; a URL or a variable may say that they do. */
export function withNodeRoots(tls: PostgresTls | undefined): PostgresTls | undefined {
  if (tls?.ca !== undefined || !(tls?.mode ?? "verify").startsWith("verify")) return tls;
  const defaultRoots = nodeRoots();
  return defaultRoots === undefined ? tls : { ...tls, defaultRoots };
}
