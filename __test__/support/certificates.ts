// @ts-expect-error a module of the benchmarks, in plain JavaScript
import { writeCertificates as write } from "../../bench/lib/certificates.mjs";

/**
 * Writes, in PEM: `ca.pem`, an authority; `server.pem` and `client.pem`, which it has signed, with their keys in
 * `server.key` and `client.key`. They are for 127.0.0.1 and for `dnsName`.
 */
export const writeCertificates = write as (folder: string, dnsName: string) => void;
