/** `ssl` as postgres.js and pg take it, in the native part's words. */

import type { NativeTls } from "./postgres-target.js";
import { readTls } from "./tls.js";

export type SslReading = { tls: NativeTls } | { obstacle: string };

/** Reads an object for Node's `tls.connect()`. */
export function readSslObject(ssl: object): SslReading {
  // pg hides the key from those who list properties.
  const reading = readTls({ ...ssl, key: (ssl as { key?: unknown }).key });
  if ("obstacle" in reading) return { obstacle: reading.obstacle.replace(/^tls/, "ssl") };
  const { rejectUnauthorized, ca, ...tls } = reading.tls;
  // With authorities, the mode "require" would check them.
  if (rejectUnauthorized === false) return { tls: { ...tls, mode: "require" } };
  return { tls: { ...tls, mode: "verify-full", ...(ca === undefined ? {} : { ca }) } };
}

/** The same for a client: an obstacle where Node itself would check the server in another way. */
export function readClientSsl(ssl: object | true): SslReading {
  const reading = readSslObject(ssl === true ? {} : ssl);
  if ("obstacle" in reading || reading.tls.mode !== "verify-full") return reading;
  const { NODE_EXTRA_CA_CERTS, NODE_TLS_REJECT_UNAUTHORIZED } = process.env;
  if (NODE_TLS_REJECT_UNAUTHORIZED === "0") return { obstacle: "NODE_TLS_REJECT_UNAUTHORIZED" };
  if (NODE_EXTRA_CA_CERTS && reading.tls.ca === undefined) {
    return { obstacle: "NODE_EXTRA_CA_CERTS" };
  }
  return reading;
}
