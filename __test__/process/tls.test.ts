/** Whom connections trust: those whom Node trusts. */

import { generateKeyPairSync } from "node:crypto";
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { createServer, type Server } from "node:tls";
import { afterAll, beforeAll, expect, test } from "vitest";
import { setupSchema } from "syncguard/postgres";
import { writeCertificates } from "../support/certificates";
import { run } from "../support/child";
import { type Emulator, startEmulator } from "../support/firestore";
import { type PostgresServer, startPostgres } from "../support/postgres";
import { type RedisServer, startRedis } from "../support/redis";
import { temporaryFolder } from "../support/temp";

const others = temporaryFolder();
let redis: RedisServer;
let postgres: PostgresServer;
let emulator: Emulator;
let firestore: Server;

beforeAll(async () => {
  writeCertificates(others.path, "localhost");
  postgres = await startPostgres();
  await setupSchema(postgres.url);
  // All servers have its certificates.
  const file = (name: string): string => join(postgres.folder, name);
  redis = await startRedis({
    portOption: "tls-port",
    lines: [
      `tls-cert-file ${file("server.pem")}`,
      `tls-key-file ${file("server.key")}`,
      `tls-ca-cert-file ${file("ca.pem")}`,
      "tls-auth-clients no",
    ],
  });
  emulator = await startEmulator();
  const [host = "", port] = emulator.host.split(":");
  const server = {
    cert: readFileSync(file("server.pem")),
    key: readFileSync(file("server.key")),
    ALPNProtocols: ["h2"],
  };
  firestore = createServer(server, (socket) => {
    const behind = connect(Number(port), host);
    for (const side of [socket, behind]) {
      side.on("error", () => {
        socket.destroy();
        behind.destroy();
      });
    }
    socket.pipe(behind).pipe(socket);
  });
  await new Promise<void>((listening) => firestore.listen(0, listening));
}, 60_000);

afterAll(async () => {
  firestore.close();
  await Promise.all([redis.stop(), postgres.stop(), emulator.stop()]);
  others.remove();
});

const ca = (): string => join(postgres.folder, "ca.pem");

/** What becomes of each way to connect in a process with these variables, on a machine without certificates. */
async function connectEverywhere(variables: Record<string, string>) {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const given = {
    redisPort: redis.port,
    pgPort: postgres.port,
    firestorePort: (firestore.address() as AddressInfo).port,
    key: privateKey.export({ type: "pkcs8", format: "pem" }),
    ca: ca(),
    otherCa: join(others.path, "ca.pem"),
  };
  const { code, stdout, stderr } = await run("node", "tls.mjs", [JSON.stringify(given)], {
    NODE_EXTRA_CA_CERTS: "",
    NODE_USE_SYSTEM_CA: "",
    SSL_CERT_FILE: "/nonexistent",
    SSL_CERT_DIR: "/nonexistent",
    GRPC_DEFAULT_SSL_ROOTS_FILE_PATH: "",
    ...variables,
  });
  expect(code, stderr).toBe(0);
  return { results: JSON.parse(stdout) as Record<string, string>, stderr };
}

/** The ways that connect. */
function admitted(results: Record<string, string>): string[] {
  return Object.keys(results).filter((name) => results[name] === "ok");
}

const WITH_CA = ["redis with its ca", "postgres with its ca"];

test("a private authority is not trusted", async () => {
  const { results } = await connectEverywhere({});
  expect(admitted(results)).toEqual(WITH_CA);
});

test("a private authority in NODE_EXTRA_CA_CERTS is trusted where no other is given", async () => {
  const { results } = await connectEverywhere({ NODE_EXTRA_CA_CERTS: ca() });
  expect(Object.keys(results).filter((name) => results[name] !== "ok")).toEqual([
    "redis with another ca",
    "postgres with another ca",
    "firestore by a user's token",
  ]);
  // Google's library has authorities of its own, or none.
  expect(results["firestore by a user's token"]).toMatch(/^AuthFailed: .*install ca-certificates/);
});

test("a file that is not there changes nothing", async () => {
  const { results } = await connectEverywhere({ NODE_EXTRA_CA_CERTS: "/nonexistent" });
  expect(admitted(results)).toEqual(WITH_CA);
});

test("NODE_TLS_REJECT_UNAUTHORIZED=0 counts where Node's words leave it open, and is warned of", async () => {
  const { results, stderr } = await connectEverywhere({ NODE_TLS_REJECT_UNAUTHORIZED: "0" });
  expect(Object.keys(results).filter((name) => results[name] !== "ok")).toEqual([
    "redis that must check",
    "redis with another ca",
    // A word of libpq, which knows no such variable.
    "postgres verify-full",
    "postgres that must check",
    "postgres with another ca",
    // Its native connection always verifies; the client itself does as Node does.
    "firestore",
    "firestore's client",
    "firestore by a user's token",
  ]);
  expect(stderr.match(/syncguard.*does not verify certificates/g)).toHaveLength(1);
});
