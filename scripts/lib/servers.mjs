// The servers that test suites start for themselves, with the Debian packages that hold them.

import { needPrograms } from "./debian.mjs";
import { needWheels } from "./wheels.mjs";

// One line per server: { command: "name", packages: ["debian-package"], why: "which suite" }
const servers = [
  { command: "redis-server", packages: ["redis-server"], why: "suites of the Redis backend" },
  { command: "redis-sentinel", packages: ["redis-sentinel"], why: "Redis over Sentinel" },
  { command: "openssl", packages: ["openssl"], why: "certificates for servers with TLS" },
  {
    command: ["initdb", "pg_ctlcluster"],
    packages: ["postgresql"],
    why: "suites of the PostgreSQL backend",
  },
  {
    command: ["chromium", "google-chrome"],
    packages: ["chromium"],
    why: "the page of the dashboard",
  },
  { command: "pgbouncer", packages: ["pgbouncer"], why: "PostgreSQL behind a pooler" },
  { command: "script", packages: ["bsdutils"], why: "a terminal for the command line" },
  { command: "faketime", packages: ["faketime"], why: "clocks that are set" },
];

/** Makes sure that every server program is there. */
export async function needServers() {
  await needPrograms(servers);
  await needWheels();
}
