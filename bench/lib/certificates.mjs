// Certificates for servers of benchmarks and tests.

import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";

/**
 * Writes, in PEM: `ca.pem`, an authority; `server.pem` and `client.pem`, which it has signed, with their keys in
 * `server.key` and `client.key`. They are for 127.0.0.1 and for `dnsName`.
 */
export function writeCertificates(folder, dnsName) {
  const openssl = (...args) => {
    execFileSync("openssl", args, { cwd: folder, stdio: "pipe" });
  };
  const newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  openssl("req", "-x509", ...newKey, "-days", "2", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem"); // prettier-ignore
  for (const name of ["server", "client"]) {
    openssl("req", ...newKey, "-subj", `/CN=${name}`, "-keyout", `${name}.key`, "-out", `${name}.csr`); // prettier-ignore
    writeFileSync(
      join(folder, `${name}.ext`),
      `basicConstraints=CA:FALSE\nsubjectAltName=IP:127.0.0.1,DNS:${dnsName}\n`,
    );
    openssl("x509", "-req", "-days", "2", "-in", `${name}.csr`, "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", `${name}.ext`, "-out", `${name}.pem`); // prettier-ignore
  }
}
